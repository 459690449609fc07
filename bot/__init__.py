"""Hermod itself: wires the engine, the chat platforms and the operations tools into one program."""

__version__ = "0.1.0"
