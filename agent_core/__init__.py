"""The engine: agents, tools, memory and model providers. It knows no chat platform and no product."""
