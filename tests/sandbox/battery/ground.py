"""What an attack is made against: a bot's files, a process like it, and listeners, with a secret in each.

Every attack gets a ground of its own, so that a finding belongs to one attack even if many run at once. Listeners are
never served: what was reached is waiting in their queues when they are looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import secrets
import socket
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CANARY = "hermod-canary-"
"""How every secret begins; any secret of any ground in an output is a finding."""
_SURVIVOR_CHARS = 8
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)


@dataclass(slots=True, kw_only=True)
class Ground:
    """The surroundings of one attack.

    Args:
        folder: of the bot's files; nothing in it may change.
        run_folder: what the sandbox gets.
        mark: how processes that must not survive are called.
        values: what is filled into the attack.
        decoy: a process like the bot.
        listeners: by what reaching them means.
    """

    folder: Path
    run_folder: Path
    mark: str
    values: Mapping[str, str]
    decoy: subprocess.Popen[bytes]
    listeners: Mapping[str, socket.socket]
    before: Mapping[str, str] = field(default_factory=dict)
    decoy_before: tuple[object, ...] = ()

    def find_hits(self) -> list[str]:
        """Return what was reached."""
        return [what for what, listener in self.listeners.items() if _was_reached(listener)]

    def find_changes(self) -> list[str]:
        """Return which of the bot's files are not as they were."""
        now = take_stock(self.folder)
        changed = {path for path, state in self.before.items() if now.get(path) != state} | (now.keys() - self.before)
        return sorted(changed)

    def find_harm_to_decoy(self) -> str:
        """Return what happened to the decoy; empty if nothing did."""
        if self.decoy.poll() is not None:
            return f"it ended with {self.decoy.returncode}"
        now = _describe(self.decoy.pid)
        return "" if now == self.decoy_before else f"its priority, processors or limits changed: {now}"


@contextlib.contextmanager
def open_ground(root: Path) -> Iterator[Ground]:
    """Lay out a ground in a folder, and clear it away."""
    token = f"{CANARY}{secrets.token_hex(12)}"
    mark = f"h{secrets.token_hex(_SURVIVOR_CHARS)[:_SURVIVOR_CHARS]}"
    home = Path(tempfile.mkdtemp(prefix="ground-", dir=root))
    bot, run_folder = home / "bot", home / "run"
    files = _lay_out(bot, token)
    for name in ("input", "output"):
        (run_folder / name).mkdir(parents=True, mode=0o700)
    (run_folder / "input" / "data.csv").write_text("a,b\n1,2\n")
    with contextlib.ExitStack() as opened:
        listeners = {what: opened.enter_context(found) for what, found in _listen(bot, mark).items()}
        decoy = subprocess.Popen(
            ["/bin/sleep", "600"], env={"TOKEN": token}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        opened.callback(decoy.wait)
        opened.callback(decoy.kill)
        values = {**files, **_addresses(listeners, mark), "BOT_PID": str(decoy.pid), "MARK": mark}
        ground = Ground(folder=bot, run_folder=run_folder, mark=mark, values=values, decoy=decoy, listeners=listeners)
        ground.before, ground.decoy_before = take_stock(bot), _describe(decoy.pid)
        try:
            yield ground
        finally:
            _remove(home)


def _remove(folder: Path) -> None:
    """Remove a folder that an attack may have made deeper than Python can go, with folders that nobody may enter."""
    for _ in range(2):
        done = subprocess.run(["/bin/rm", "-rf", str(folder)], stderr=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            return
        subprocess.run(["/bin/chmod", "-R", "u+rwx", str(folder)], stderr=subprocess.DEVNULL, check=False)
    raise OSError(f"{folder} cannot be removed")


def take_stock(folder: Path) -> dict[str, str]:
    """Return content, mode and time of everything below a folder, by path."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        changed = "" if stat.S_ISSOCK(status.st_mode) else str(status.st_mtime_ns)
        found[str(path.relative_to(folder))] = f"{status.st_mode:o} {status.st_uid} {changed} {content}"
    return found


def _lay_out(bot: Path, token: str) -> dict[str, str]:
    home, outside, site, other = bot / "home", bot / "outside", bot / "site", bot / "other-run"
    secrets_of_home = (".ssh/id_ed25519", ".aws/credentials", ".kube/config")
    for folder in (outside, site, other, *((home / name).parent for name in secrets_of_home)):
        folder.mkdir(parents=True, exist_ok=True)
    config = bot / "hermod.toml"
    config.write_text(f'bot_token = "{token}"\n')
    for name in secrets_of_home:
        (home / name).write_text(token)
    (home / ".bashrc").write_text("# as it was\n")
    (other / "secret.txt").write_text(token)
    (bot / f"{CANARY}left-over").write_text(token)
    with contextlib.closing(sqlite3.connect(bot / "hermod.db")) as database, database:
        database.execute("create table t (secret text)")
        database.execute("insert into t values (?)", (token,))
    # Read for everybody: what keeps the code away from it must not be the owner of the files.
    for path in bot.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (bot / "current").symlink_to(token)
    names = {"CONFIG": config, "DB": bot / "hermod.db", "HOME": home, "OUTSIDE": outside, "SITEDIR": site}
    names["LINK"] = bot / "current"
    return {**{name: str(path) for name, path in names.items()}, "OTHER_RUN": str(other)}


def _listen(bot: Path, mark: str) -> dict[str, socket.socket]:
    made: dict[str, tuple[socket.AddressFamily, socket.SocketKind, tuple[str, int] | str]] = {
        "a port of this machine": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "a UDP port of this machine": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "a port of this machine by IPv6": (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
        "a socket in the file system": (socket.AF_UNIX, socket.SOCK_STREAM, str(bot / "control.sock")),
        "a datagram socket in the file system": (socket.AF_UNIX, socket.SOCK_DGRAM, str(bot / "log.sock")),
        "an abstract socket": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{mark}"),
    }
    found = {}
    for what, (family, kind, address) in made.items():
        try:
            listener = socket.socket(family, kind)
            listener.bind(address)
        except OSError:  # a machine, or a container, without IPv6
            if family != socket.AF_INET6:
                raise
            continue
        listener.setblocking(False)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        found[what] = listener
    return found


def _addresses(listeners: Mapping[str, socket.socket], mark: str) -> dict[str, str]:
    six = listeners.get("a port of this machine by IPv6")
    return {
        "TCP": str(listeners["a port of this machine"].getsockname()[1]),
        "UDP": str(listeners["a UDP port of this machine"].getsockname()[1]),
        "TCP6": str(six.getsockname()[1] if six is not None else 9),
        "UNIX": str(listeners["a socket in the file system"].getsockname()),
        "UNIXD": str(listeners["a datagram socket in the file system"].getsockname()),
        "ABSTRACT": mark,
    }


def _was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True


def _describe(pid: int) -> tuple[object, ...]:
    limits = tuple(resource.prlimit(pid, kind) for kind in _LIMITS)
    return os.getpriority(os.PRIO_PROCESS, pid), frozenset(os.sched_getaffinity(pid)), limits
