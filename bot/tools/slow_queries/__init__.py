"""Slow queries and plans of live databases."""
