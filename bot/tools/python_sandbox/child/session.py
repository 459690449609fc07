"""A process that keeps its variables: one program after the other in the same ``__main__``.

It is restricted before it reads the first program, and everything in it may have been replaced by the code since. So
its answers are the code's own word: they say when a program is done and what a traceback said, nothing that protects.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from types import ModuleType
from typing import NoReturn

from . import source

_LENGTH = struct.Struct("!I")


def serve_session(requests: int, answers: int) -> NoReturn:
    """Run programs until the pipe of requests is closed, then end the process.

    A request is a length (four bytes, big endian) and a JSON object with ``id`` and ``code``. The answer is a line with
    a JSON object: ``id``, and the exit ``code`` that the program would have ended with.
    """
    main = ModuleType("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    while (head := _read(requests, _LENGTH.size)) is not None:
        body = _read(requests, *_LENGTH.unpack(head))
        if body is None:
            break
        request = json.loads(body)
        code = _execute(request["code"], request["id"], main)
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        os.write(answers, json.dumps({"id": request["id"], "code": code}).encode() + b"\n")
    os._exit(0)


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


def _read(descriptor: int, size: int) -> bytes | None:
    chunks = b""
    while len(chunks) < size:
        chunk = os.read(descriptor, size - len(chunks))
        if not chunk:
            return None
        chunks += chunk
    return chunks
