"""Scheduled jobs: when they run, and what becomes of a time that was missed."""
