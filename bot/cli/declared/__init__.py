"""The groups of commands of ``hermod``, a module each; what a command does is imported when it runs."""
