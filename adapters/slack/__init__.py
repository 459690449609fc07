"""Slack, through slack-bolt (Socket Mode)."""
