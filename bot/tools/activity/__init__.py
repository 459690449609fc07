"""What goes on in a database at this moment: running statements, lock trees, what a role may see, ending sessions."""

from bot.tools.activity.tools import register_activity_tools

__all__ = ["register_activity_tools"]
