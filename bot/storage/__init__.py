"""Rows first: the Store protocol and its implementations."""
