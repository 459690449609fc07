"""Tools: how they are described, registered and run."""
