"""A process that keeps its variables: one program after the other in the same ``__main__``.

It is restricted before it reads the first program, and everything in it may have been replaced by the code since. So
its answers are the code's own word: they say when a program is done and how, nothing that protects.
"""

from __future__ import annotations

import os
import sys

from . import source
from .wire import read_message, render_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn


def serve_session(requests: int, answers: int) -> NoReturn:
    """Run programs until the pipe of requests is closed, then end the process.

    A request is a message (see ``wire``) with ``id`` and ``code``. The answer is a line with a JSON object: the
    ``id``, and the exit ``code`` that the program would have ended with.
    """
    main = type(sys)("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    try:
        while True:
            request = read_message(requests)
            number = int(str(request["id"]))
            code = _execute(str(request["code"]), number, main)
            _flush(sys.stdout)
            _flush(sys.stderr)
            os.write(answers, render_json({"id": number, "code": code}).encode() + b"\n")
    except ValueError:  # the pipe is closed
        os._exit(0)
    finally:
        os._exit(1)


def _execute(code: str, number: int, main: ModuleType) -> int:
    filename = "<code>" if number == 1 else f"<code {number}>"  # functions of an earlier program keep their lines
    source.remember_lines(code, filename)
    try:
        exec(compile(code, filename, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - the process is locked in
    except SystemExit as request:
        return source.exit_code(request.code)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its outcome, none of ours
        source.report_error(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        return 1
    return 0


def _flush(stream: object) -> None:
    try:
        stream.flush()  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001 - closed, replaced or broken by the program
        return
