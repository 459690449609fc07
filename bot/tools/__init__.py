"""Operations tools, one folder a topic."""
