"""How a thread's kept interpreter is named.

The name is made at random and stands in the thread's folder. Where that folder was forgotten or has grown too old, the
thread gets another name, and nobody can reach what the old interpreter knew.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from bot.tools.python_sandbox.folders import SESSION, Folders

_KEY = re.compile(r"[0-9a-f]{32}")


def load_session_key(folders: Folders, folder: Path) -> str:
    """Return the name of a thread's kept interpreter; it blocks. A name that cannot be read is made anew.

    Args:
        folders: of all threads.
        folder: the thread's, as ``Folders.open`` made it.
    """
    path = folder / SESSION
    try:
        key = path.read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        key = ""
    if _KEY.fullmatch(key) is None:
        key = secrets.token_hex(16)
    folders.write(path, key.encode())
    return key
