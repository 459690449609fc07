"""The loop of one run: states, events, guards."""
