"""The cold start: one request on an inherited descriptor, one interpreter, one run.

The request is one message (see ``wire``): ``{"policy": {...}, "code": "...", "fonts": "..."}``. If a second descriptor
is given, one message is written to it before the code can do anything, and it is closed: ``{"state": "restricted",
"address_space_bytes": ..., "resident_bytes": ...}`` (of the process before the run) or ``{"state": "refused", "reason":
...}``. After "restricted" only the kernel tells how the run ended.
"""

from __future__ import annotations

import os
import resource
import sys

from .policy import Policy, default_read_paths
from .refused import NotEnforced
from .restrict import restrict
from .rlimits import address_space_bytes
from .source import forgive_links, open_standard_streams, run_source
from .wire import read_message, write_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

REFUSED_EXIT = 125
_ONE_THREAD_EACH = (
    *("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
)
# What may be set when the process starts. Anything else would stay readable in its memory, whatever is deleted later.
HARMLESS_VARIABLES = frozenset(
    (
        *("LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "PATH", "PWD", "TMPDIR", "LD_LIBRARY_PATH", "MPLBACKEND"),
        *("MPLCONFIGDIR", *_ONE_THREAD_EACH),
    )
)


class Request:
    """One run. Immutable."""

    __slots__ = ("code", "fonts", "policy")

    def __init__(self, *, policy: Policy, code: str, fonts: str = "") -> None:
        """Make a request.

        Args:
            policy: what it may touch.
            code: Python source. Text that is not UTF-8 comes with surrogates, and fails to compile as it should.
            fonts: a folder with matplotlib's font list, built before; empty: it looks for fonts when it is loaded.
        """
        self.policy, self.code, self.fonts = policy, code, fonts


def serve(request_descriptor: int, reply_descriptor: int | None) -> NoReturn:
    """Take one request, lock the process in and run the code."""
    try:
        check_environment()
        request = read_request(request_descriptor)
        close_descriptors(keep=reply_descriptor)
        policy = prepare(request)
        open_standard_streams()
        state: dict[str, str | int] = {"state": "restricted", "address_space_bytes": address_space_bytes()}
        state["resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        restrict(policy)
    except (NotEnforced, ValueError, OSError) as error:
        reply(reply_descriptor, {"state": "refused", "reason": str(error)})
        print(f"the sandbox refused to start: {error}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(REFUSED_EXIT)
    reply(reply_descriptor, state)
    forget_modules(__name__.rpartition(".")[0])
    run_source(request.code)


def check_environment() -> None:
    """Refuse to go on if the process was started with a variable that may be a secret.

    Raises:
        NotEnforced: names the variables, never their values.
    """
    others = sorted(os.environ.keys() - HARMLESS_VARIABLES)
    if others:
        raise NotEnforced(f"the sandbox's process must be started without these variables: {', '.join(others[:10])}")


def read_request(descriptor: int) -> Request:
    """Read one request.

    Raises:
        ValueError: it is cut short, too long, not JSON, or a field is wrong.
        OSError: it cannot be read.
    """
    raw = read_message(descriptor)
    policy, code, fonts = raw.get("policy"), raw.get("code"), raw.get("fonts", "")
    if not isinstance(policy, dict) or not isinstance(code, str) or not isinstance(fonts, str):
        raise ValueError("the sandbox's request needs policy (an object), code and fonts (texts)")
    if raw.keys() - {"policy", "code", "fonts"}:
        raise ValueError("the sandbox's request has a field that does not exist")
    return Request(policy=Policy.from_fields(policy), code=code, fonts=fonts)


def reply(descriptor: int | None, message: dict[str, str | int]) -> None:
    """Write one message and close the descriptor, so that the code cannot write another."""
    if descriptor is None:
        return
    try:
        write_message(descriptor, message)
    finally:
        os.close(descriptor)


def prepare(request: Request, read: tuple[str, ...] = ()) -> Policy:
    """Set what the code sees of its surroundings; return the policy with the paths that this interpreter needs.

    Args:
        request: the run.
        read: what ``default_read_paths`` returned before, for a policy that names no paths; empty: find them now.
    """
    scratch = request.policy.scratch
    read = request.policy.read or read or default_read_paths()
    settings = os.path.join(scratch, ".matplotlib")
    os.environ.clear()
    os.environ.update(dict.fromkeys(_ONE_THREAD_EACH, "1"))
    os.environ.update({"HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8", "TZ": "UTC", "PATH": ""})
    os.environ.update({"MPLBACKEND": "Agg", "MPLCONFIGDIR": settings})
    if request.fonts:
        _copy_font_list(request.fonts, settings, request.policy)
    sys.path[:] = [entry for entry in sys.path if _is_granted(os.path.realpath(entry), read)]
    forgive_links()
    return request.policy.replace_read(read)


def _is_granted(path: str, read: tuple[str, ...]) -> bool:
    return any(path == granted or path.startswith(granted + "/") for granted in read)


def _copy_font_list(source: str, target: str, policy: Policy) -> None:
    os.makedirs(target, exist_ok=True)
    made = [target]
    for name in os.listdir(source):
        if name.startswith("fontlist") and name.endswith(".json"):
            made.append(os.path.join(target, name))
            with open(os.path.join(source, name), "rb") as found, open(made[-1], "wb") as copy:
                copy.write(found.read())
    if policy.uid is not None and policy.gid is not None:
        for path in made:
            os.chown(path, policy.uid, policy.gid, follow_symlinks=False)


def close_descriptors(*, keep: int | None) -> None:
    """Close every descriptor but the standard streams and ``keep``."""
    opened = [int(name) for name in os.listdir("/proc/self/fd")]
    for descriptor in opened:
        if descriptor > 2 and descriptor != keep:
            try:
                os.close(descriptor)
            except OSError:
                continue  # the one with which the folder was listed


def forget_modules(package: str) -> None:
    """Remove this package from the modules that an ``import`` of the code finds."""
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        del sys.modules[name]
