"""The terminal as a chat platform: local threads, one person."""
