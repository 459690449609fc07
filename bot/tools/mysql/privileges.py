"""Which rights of an account are dangerous for a tool that only reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_core.errors import ToolFailed
from bot.tools.targets import Target

# Their owner can lift every other guard: variables, accounts, the server itself.
_SUPERUSER = frozenset(
    {"ALL", "ALL PRIVILEGES", "SUPER", "CREATE USER", "SHUTDOWN", "SYSTEM_USER", "SYSTEM_VARIABLES_ADMIN"}
)
# Reading and writing files on the server happens inside a plain SELECT.
_FILE = frozenset({"ALL", "ALL PRIVILEGES", "FILE"})
_GLOBAL = re.compile(r"GRANT (?P<rights>.+?) ON \*\.\* TO ", re.DOTALL)
_WORDS = {"superuser": "administers the server (SUPER or the like)", "file_privilege": "may read and write its files"}


def find_risks(grants: Iterable[str]) -> frozenset[str]:
    """Name the dangerous rights in the lines of SHOW GRANTS: ``superuser``, ``file_privilege``.

    Lines without ``ON *.*`` (rights on one database, roles) hold none of them. SHOW GRANTS without a name lists
    what the active roles give, too (https://dev.mysql.com/doc/refman/8.4/en/show-grants.html,
    https://mariadb.com/kb/en/show-grants/).
    """
    risks: set[str] = set()
    for line in grants:
        if match := _GLOBAL.match(line):
            rights = {right.strip().upper() for right in match["rights"].split(",")}
            risks |= {name for name, held in (("superuser", _SUPERUSER), ("file_privilege", _FILE)) if rights & held}
    return frozenset(risks)


def refuse_risks(grants: Iterable[str], target: Target) -> None:
    """Check that the account has no dangerous right that the operator did not accept by name.

    Raises:
        ToolFailed: code ``dangerous_role``, naming the rights and both ways out.
    """
    left = sorted(find_risks(grants) - target.accept_risks)
    if left:
        names = ", ".join(f'"{name}"' for name in sorted(target.accept_risks | set(left)))
        raise ToolFailed(
            f"target {target.name!r}: its account {' and '.join(_WORDS[name] for name in left)}; "
            "that is more than a tool that only reads should have",
            code="dangerous_role",
            fix=(
                f"make a read-only account with the statements that 'hermod targets grant {target.name}' prints, or "
                f"accept the danger with accept_risks = [{names}] in the target's settings"
            ),
        )
