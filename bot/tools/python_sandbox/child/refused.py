"""Why nothing is run."""

from __future__ import annotations


class NotEnforced(Exception):
    """Something that the policy asks for cannot be enforced here; the process must end without running the code.

    The message says what, for the operator.
    """
