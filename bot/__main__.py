"""``python -m bot`` is ``hermod``."""

from bot.cli import main

main()
