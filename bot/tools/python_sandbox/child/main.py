"""Start of the sandbox's process: ``python -I -B .../child/main.py REQUEST_DESCRIPTOR [REPLY_DESCRIPTOR]``.

It is run as a file, by an interpreter that knows nothing of the bot: its folder becomes a package of its own, without
a place on ``sys.path`` (a neighbour is called ``types``).
"""

from __future__ import annotations

import os
import sys

if not __package__:
    __package__ = "hermod_sandbox_child"
    _package = type(sys)(__package__)
    _package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[__package__] = _package

from .cold import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
