"""What a thread remembers, and how it is made fit to send."""
