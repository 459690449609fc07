"""The terminal as a chat platform: local threads, one person."""

from adapters.terminal.app import TerminalAdapter

__all__ = ["TerminalAdapter"]
