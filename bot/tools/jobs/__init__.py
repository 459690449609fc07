"""Scheduled reports by words: proposed, listed and changed in the conversation."""
