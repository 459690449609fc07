"""What one run may touch, as a value that the parent sends and the child applies."""

from __future__ import annotations

import os
import sys

from .wire import parse_json

# Not from typing, and no dataclass below: what is imported here is paid at every cold start (dataclasses: 5 ms).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MiB = 1024 * 1024

_RULES = ("no_new_privs", "dumpable", "capabilities", "input", "landlock", "seccomp")
_RULE_KINDS = ("rlimit:", "landlock:", "seccomp:")
_FONTS_AND_ZONES = ("/usr/share/fonts", "/usr/local/share/fonts", "/usr/share/zoneinfo")
_TOO_WIDE = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin"),
        *("/srv", "/sys", "/tmp", "/usr", "/usr/local", "/usr/share", "/var", "/var/run", "/var/tmp"),  # noqa: S108
    )
)
_LIBRARY_FOLDERS = ("lib", "lib64", "local/lib")
_SYSTEM_LIBRARIES = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
_NEVER_BELOW = ("/proc", "/sys", "/dev", "/run", "/var/run", "/etc")


class Policy:
    """What ``restrict`` enforces. An immutable value; sizes are bytes."""

    __slots__ = (
        *("scratch", "read", "input", "memory_bytes", "cpu_s", "file_bytes", "open_files", "threads", "uid", "gid"),
        *("native_libraries", "without", "landlock_abi"),
    )

    scratch: str
    read: tuple[str, ...]
    input: str
    memory_bytes: int
    cpu_s: int
    file_bytes: int
    open_files: int
    threads: int
    uid: int | None
    gid: int | None
    native_libraries: bool
    without: tuple[str, ...]
    landlock_abi: int

    def __init__(
        self,
        *,
        scratch: str,
        read: tuple[str, ...] = (),
        input: str = "",
        memory_bytes: int = 512 * MiB,
        cpu_s: int = 5,
        file_bytes: int = 16 * MiB,
        open_files: int = 64,
        threads: int = 128,
        uid: int | None = None,
        gid: int | None = None,
        native_libraries: bool = True,
        without: tuple[str, ...] = (),
        landlock_abi: int = 0,
    ) -> None:
        """Make a policy.

        Args:
            scratch: absolute path of the only folder where the code may write; it becomes the working directory.
            read: absolute paths that may be read (a folder: all below it); empty: ``default_read_paths()``, found in
                the child, so that they are those of the interpreter that runs.
            input: a folder inside ``scratch`` that is made read-only; empty: none.
            memory_bytes: of address space above what the process has when it is restricted.
            cpu_s: whole seconds of processor time; SIGXCPU there, SIGKILL one second later.
            file_bytes: of one file.
            open_files: descriptors.
            threads: at least as many can be started; at most that, and as many again as the user has processes. Not for
                root, whom the kernel exempts: give root's runs a ``uid``, or have a cgroup bound them.
            uid, gid: become this user first (only root can); None: stay, without any capability.
            native_libraries: code from files may be mapped executable, which the import of a compiled module needs.
                False once all that is needed was imported: then no native code can be brought in at all.
            without: rules that are left out. For tests only, which show with it that each rule is needed.
            landlock_abi: behave as on a kernel that has this version at most. For tests only; 0: what the kernel has.

        Raises:
            ValueError: says which argument, and what is wrong with it.
        """
        given = locals()
        for name in self.__slots__:
            object.__setattr__(self, name, given[name])
        self._check()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a policy cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.to_fields() == other.to_fields()

    def __hash__(self) -> int:
        return hash(tuple(self.to_fields().values()))

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in self.to_fields().items())})"

    def _check(self) -> None:
        paths = (self.scratch, *self.read, *((self.input,) if self.input else ()))
        for path in paths:
            if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
                raise ValueError(f"sandbox policy: {path!r} is not an absolute path without '..'")
        _check_width("scratch", (self.scratch,), ("/proc", "/sys", "/dev", "/etc"))
        _check_width("read", self.read, _NEVER_BELOW)
        if self.input and not os.path.normpath(self.input).startswith(os.path.normpath(self.scratch) + "/"):
            raise ValueError(f"sandbox policy: input {self.input!r} is not inside scratch {self.scratch!r}")
        for name in ("memory_bytes", "cpu_s", "file_bytes", "open_files", "threads"):
            if getattr(self, name) <= 0:
                raise ValueError(f"sandbox policy: {name} must be greater than 0, not {getattr(self, name)}")
        if (self.uid is None) != (self.gid is None) or self.uid == 0 or self.gid == 0:
            raise ValueError("sandbox policy: uid and gid go together, and neither may be root's")
        unknown = [rule for rule in self.without if rule not in _RULES and not rule.startswith(_RULE_KINDS)]
        if unknown:
            raise ValueError(f"sandbox policy: there is no rule called {unknown[0]!r}")

    def has(self, rule: str) -> bool:
        """Tell whether a rule is on."""
        return rule not in self.without

    def replace_read(self, read: tuple[str, ...]) -> Policy:
        """Return the same policy with other paths to read."""
        return Policy.from_fields({**self.to_fields(), "read": read})

    def to_fields(self) -> dict[str, object]:
        """Return the policy as plain values, which ``json`` can write."""
        return {name: getattr(self, name) for name in self.__slots__}

    def to_json(self) -> str:
        """Return the policy as one JSON object."""
        import json

        return json.dumps(self.to_fields())

    @classmethod
    def from_json(cls, text: str | bytes) -> Policy:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: not a JSON object; otherwise see ``from_fields``.
        """
        return cls.from_fields(parse_json(text if isinstance(text, str) else text.decode()))

    @classmethod
    def from_fields(cls, raw: dict[str, object]) -> Policy:
        """Read what ``to_fields`` returned.

        Raises:
            ValueError: a field does not exist, is missing or has the wrong type, or see the class.
        """
        kinds = cls.__annotations__
        unknown = sorted(raw.keys() - kinds.keys())
        if unknown:
            raise ValueError(f"sandbox policy: there is no field called {unknown[0]!r}")
        if "scratch" not in raw:
            raise ValueError("sandbox policy: scratch is missing")
        return cls(**{name: _read_field(name, kinds[name], value) for name, value in raw.items()})  # type: ignore[arg-type]


def _read_field(name: str, kind: str, value: object) -> object:
    match kind:
        case "tuple[str, ...]" if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        case "str" if isinstance(value, str):
            return value
        case "bool" if isinstance(value, bool):
            return value
        case "int" | "int | None" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "int | None" if value is None:
            return None
    raise ValueError(f"sandbox policy: {name} must be {kind}, not {value!r}")


def _check_width(field: str, paths: Iterable[str], below: tuple[str, ...]) -> None:
    for path in paths:
        plain = os.path.normpath(path)
        if plain in _TOO_WIDE or any(plain.startswith(root + "/") for root in below):
            raise ValueError(f"sandbox policy: {field} {path!r} opens too much of the machine; name a narrower folder")


def default_read_paths() -> tuple[str, ...]:
    """Return what this interpreter needs: its library folders, shared libraries, fonts and time zones.

    Folders on ``sys.path`` outside the interpreter's own library folders (an editable install) are not among
    them. Must be called before the restriction, because it reads ``/proc/self/maps`` for the shared libraries.
    """
    prefixes = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    below = (*(f"{prefix}/{folder}/" for prefix in prefixes for folder in _LIBRARY_FOLDERS), *_SYSTEM_LIBRARIES)
    wanted = [os.path.dirname(os.__file__)]
    wanted += [entry for entry in sys.path if os.path.realpath(entry).startswith(below)]
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line}
    for library in sorted(os.path.realpath(path) for path in mapped if ".so" in os.path.basename(path)):
        # The folder, for what the library loads later; but not any folder that somebody preloaded a library from.
        wanted.append(os.path.dirname(library) if library.startswith(below) else library)
    found: list[str] = []
    for path in (*wanted, "/usr/lib64", *_FONTS_AND_ZONES):
        real = os.path.realpath(path)
        if os.path.exists(real) and not any(real == other or real.startswith(other + "/") for other in found):
            found.append(real)
    return tuple(found)
