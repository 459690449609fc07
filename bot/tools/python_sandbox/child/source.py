"""Run a program as ``__main__``, and end the process the way an interpreter would, only faster.

The code may have replaced anything in the interpreter by the time it ends. That costs it its own output at most: how
the run ended is told to the parent by the kernel.
"""

from __future__ import annotations

import atexit
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import NoReturn

TRACEBACK_CHARS = 32 * 1024
_LINE_CHARS = 240


def run_source(code: str, filename: str = "<code>") -> NoReturn:
    """Compile and run ``code`` as ``__main__``, then end the process.

    A traceback goes to stderr and names only the code's own lines. Threads are waited for and ``atexit`` functions are
    run, as at a normal end; the interpreter is not taken down (it takes hundreds of milliseconds with pandas loaded).

    Exit codes: 0, 1 after an exception, what ``sys.exit`` was called with, as ``python`` has it.
    """
    leave, stdout, stderr = os._exit, sys.stdout, sys.stderr
    status = 1
    try:
        status = _run(code, filename)
        status = _shut_down() or status
    finally:
        try:
            _flush(sys.stdout, sys.stderr, stdout, stderr)
        finally:
            leave(status)


def open_standard_streams() -> None:
    """Put fresh text streams on descriptors 0 to 2: UTF-8, by lines, and nothing that cannot be encoded raises.

    By lines, so that a run that is killed at its deadline has shown what it printed.
    """
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stdout = _text_writer(1)
    sys.stderr = _text_writer(2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def forgive_links() -> None:
    """Let ``os.path.realpath`` return a path as it is where a link in it may not be read; with ``strict`` it raises.

    The filter answers that nothing is a link, while ``lstat`` sees that it is one: Python's function, unlike that of
    libc, fails over it, and with it the import of packages that a distribution has put together with links.
    """
    follow = os.path.realpath

    def realpath(filename: str | bytes | os.PathLike[str], *, strict: bool = False) -> str | bytes:
        try:
            return follow(filename, strict=strict)
        except OSError:
            if strict:
                raise
            return os.path.abspath(filename)

    os.path.realpath = realpath  # type: ignore[assignment]


def _text_writer(descriptor: int) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115 - lives as long as the process
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _run(code: str, filename: str) -> int:
    main = type(sys)("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    main.__file__ = filename
    sys.modules["__main__"] = main
    sys.argv = [filename]
    try:
        exec(_compile(code, filename), main.__dict__)  # noqa: S102 - the whole purpose; the process is locked in
    except SystemExit as request:
        return exit_code(request.code)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its outcome, none of ours
        remember_lines(code, filename)
        report_error(error)
        return 1
    return 0


def _compile(code: str, filename: str) -> CodeType:
    return compile(code, filename, "exec", dont_inherit=True)


def remember_lines(code: str, filename: str) -> None:
    """Let tracebacks show the lines of a program that is in no file."""
    import linecache

    lines = [line[:_LINE_CHARS] + "\n" for line in code.splitlines()]
    linecache.cache[filename] = (len(code), None, lines, filename)


def exit_code(code: object) -> int:
    """Return what python would exit with after ``sys.exit(code)``; a message goes to stderr."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201 - as python does
    return 1


def report_error(error: BaseException) -> None:
    """Show an exception of the program on stderr, as python does, without the frames of this module."""
    import traceback

    hook = sys.excepthook
    own = _own_frames(error.__traceback__)
    if hook is not sys.__excepthook__:
        hook(type(error), error, own)
        return
    try:
        text = "".join(traceback.format_exception(type(error), error, own))
    except BaseException as again:  # noqa: BLE001 - an exception that cannot be shown, or no memory left to do it
        text = f"{type(error).__name__} (it could not be shown: {type(again).__name__})\n"
    if len(text) > TRACEBACK_CHARS:
        # The last line says what went wrong.
        half = TRACEBACK_CHARS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
    sys.stderr.write(text)


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this module, which come first."""
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def _shut_down() -> int:
    """Wait for threads and run ``atexit`` functions; return 0, or what one of them called ``sys.exit`` with."""
    try:
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
    except SystemExit as request:
        return exit_code(request.code)
    except BaseException as error:  # noqa: BLE001 - as above
        report_error(error)
    return 0


def _flush(*streams: object) -> None:
    for stream in streams:
        try:
            stream.flush()  # type: ignore[attr-defined]
        except BaseException:  # noqa: BLE001, S112 - closed, replaced or broken by the program; the next one still counts
            continue
