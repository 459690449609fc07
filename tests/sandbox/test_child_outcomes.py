"""How programs end in the sandbox's process, and what they find there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.policy import MiB, Policy
from bot.tools.python_sandbox.child.restrict import is_supported
from tests.sandbox.child_process import ChildRun, run_child, run_request, scratch_folder

pytestmark = pytest.mark.skipif(bool(is_supported()), reason=is_supported() or "supported")


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


def run(scratch: Path, code: str, **fields: int) -> ChildRun:
    policy = Policy.from_fields({"scratch": str(scratch), "input": str(scratch / "input"), **fields})
    return run_child(code, policy)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(1)", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit(263)", 7),
        ("import sys; sys.exit(-1)", 255),
        ("import sys; sys.exit(True)", 1),
        ("raise SystemExit", 0),
        ("1/0", 1),
        ("raise KeyboardInterrupt", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    ],
)
def test_the_exit_code_is_the_programs(code: str, expected: int, scratch: Path) -> None:
    assert run(scratch, code).code == expected


def test_a_message_given_to_exit_goes_to_stderr(scratch: Path) -> None:
    done = run(scratch, "import sys; sys.exit('no rows')")
    assert (done.code, done.err) == (1, "no rows\n")


def test_a_traceback_shows_the_programs_lines_only(scratch: Path) -> None:
    done = run(scratch, "def f():\n    return 1 / 0\n\nf()\n")
    assert done.err.splitlines()[0] == "Traceback (most recent call last):"
    assert 'File "<code>", line 4, in <module>' in done.err
    assert "return 1 / 0" in done.err
    assert done.err.endswith("ZeroDivisionError: division by zero\n")
    assert "source.py" not in done.err


NESTED = "[" * 100_000


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("print(1)\0print(2)", "null byte|source code string cannot contain null bytes"),
        ("x = '\udcff'", "UnicodeEncodeError"),
        ("def f(:", "SyntaxError"),
        (NESTED, "SyntaxError: too many nested parentheses"),
        ("-" * 100_000 + "1", "MemoryError|RecursionError|too many nested|too complex"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("def f(n): g(n + 1)\ndef g(n): f(n + 1)\nf(0)", "RecursionError"),
        ("raise ValueError('x' * 10_000_000)", r"\[\.\.\. \d+ characters \.\.\.\]"),
        ("x = '" + "y" * 200_000 + "' +", "SyntaxError"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "<exception str\\(\\) failed>"),
        ("class E(Exception):\n    __class__ = property(lambda self: 1/0)\nraise E('lies')", "E"),
        ("raise ExceptionGroup('g', [ValueError('one'), TypeError('two')])", "TypeError: two"),
        ("import sys\nsys.excepthook = lambda *a: print('own hook', file=sys.stderr)\n1/0", "own hook"),
        ("import sys\nsys.excepthook = lambda *a: 1/0\n1/0", ""),
    ],
)
def test_hostile_source_ends_as_an_ordinary_error(code: str, error: str, scratch: Path) -> None:
    import re

    done = run(scratch, code)
    assert done.code == 1
    assert re.search(error, done.err)
    assert len(done.err) < 40_000


def test_recursion_through_native_code_ends_in_an_error_or_a_signal(scratch: Path) -> None:
    done = run(
        scratch,
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr([self])\nrepr(A())",
    )
    assert done.code in {1, -signal.SIGSEGV}


@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nbuiltins.__dict__.clear()",
        "import sys\nsys.modules.clear()\nsys.stdout = sys.stderr = None",
        "import sys\nsys.stdout.close(); sys.stderr.close()",
        "import os, sys\nos._exit = None; sys.stdout = object()",
        "import threading, atexit\nthreading._shutdown = None\natexit.register(lambda: 1/0)",
    ],
)
def test_a_program_that_breaks_its_interpreter_still_ends(code: str, scratch: Path) -> None:
    done = run(scratch, code)
    assert done.code in {0, 1}
    assert done.reply["state"] == "restricted"


def test_what_was_printed_is_there_after_a_crash(scratch: Path) -> None:
    done = run(scratch, "print('before')\nimport ctypes; ctypes.string_at(0)")
    assert (done.out, done.code) == ("before\n", -signal.SIGSEGV)


def test_text_that_cannot_be_encoded_is_printed_escaped(scratch: Path) -> None:
    assert run(scratch, "print('\\ud800 慢查询')").out == "\\ud800 慢查询\n"


def test_threads_and_exit_functions_are_waited_for(scratch: Path) -> None:
    code = (
        "import atexit, threading, time\natexit.register(print, 'at exit', end='')\n"
        "def work():\n    time.sleep(0.05); print('thread')\n"
        "threading.Thread(target=work).start(); print('main')\n"
    )
    assert run(scratch, code).out == "main\nthread\nat exit"


def test_running_out_of_memory_is_an_error_of_the_program(scratch: Path) -> None:
    done = run(scratch, "x = bytearray(100 << 20)", memory_bytes=32 * MiB)
    assert done.code == 1
    assert "MemoryError" in done.err
    huge = run(scratch, "x = []\nwhile True: x.append(bytearray(1 << 20))", memory_bytes=32 * MiB)
    assert huge.code == 1
    assert "MemoryError" in huge.err


def test_processor_time_ends_with_a_signal_of_its_own(scratch: Path) -> None:
    assert run(scratch, "while True: pass", cpu_s=1).code == -signal.SIGXCPU
    stubborn = "import signal\nfor n in (2, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
    assert run(scratch, stubborn, cpu_s=1).code == -signal.SIGKILL


def test_the_process_holds_nothing_but_its_standard_streams(scratch: Path) -> None:
    left, right = socket.socketpair()
    with left, right:
        code = "import os\nfor n in range(3, 1024):\n    try: os.fstat(n); print(n)\n    except OSError: pass\n"
        code += "print(os.read(0, 9))"
        policy = Policy(scratch=str(scratch))
        done = run_child(code, policy, pass_fds=(left.fileno(),))
    assert done.out == "b''\n"


def test_the_process_finds_a_clean_place(scratch: Path) -> None:
    code = (
        "import os, sys\nprint(os.getcwd()); print(sorted(os.environ)); print(sys.argv, __name__, os.umask(0))\n"
        "print([n for n in sys.modules if 'hermod' in n], [p for p in sys.path if 'sandbox' in p])\n"
    )
    cwd, names, what, left = run(scratch, code).out.splitlines()
    assert cwd == str(scratch)
    assert "OPENBLAS_NUM_THREADS" in names
    assert "HERMOD" not in names
    assert what == "['<code>'] __main__ 0"
    assert left == "[] []"


def test_a_variable_that_may_be_a_secret_keeps_the_process_from_starting(scratch: Path) -> None:
    policy = Policy(scratch=str(scratch))
    done = run_child("print('ran')", policy, environment={"HERMOD_SLACK__BOT_TOKEN": "xoxb-secret", "LANG": "C"})
    assert done.code == 125
    assert done.out == ""
    assert done.reply["state"] == "refused"
    assert "HERMOD_SLACK__BOT_TOKEN" in str(done.reply["reason"])
    assert "xoxb" not in done.err + str(done.reply)


def test_nothing_of_the_environment_is_left_in_memory(scratch: Path) -> None:
    # libc's own pointer still leads to what the process was started with.
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nblock = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, '__environ')\n"
        "n = 0\nwhile block[n]: print(block[n]); n += 1\n"
    )
    out = run(scratch, code).out
    assert "SECRET" not in out
    assert "PYTHON" not in out


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (b"", "ends 4 bytes early"),
        (b"\0\0", "ends 2 bytes early"),
        (b"\0\0\0\5{}", "ends 3 bytes early"),
        (b"\x7f\0\0\0", "at most"),
        (b"\0\0\0\1{", "not JSON"),
        (b"\0\0\0\2[]", "not one JSON object"),
        (b"\0\0\0\2{}", "needs policy"),
        (b'\0\0\0\x1b{"policy": {}, "code": "1"}', "scratch is missing"),
    ],
)
def test_a_request_that_is_not_one_is_refused_and_runs_nothing(request_bytes: bytes, reason: str) -> None:
    import re

    done = run_request(request_bytes)
    assert done.code == 125
    assert done.reply["state"] == "refused"
    assert re.search(reason, str(done.reply["reason"])), done.reply


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"scratch": "/nonexistent/folder"}, "/nonexistent/folder"),
        ({"read": ["/usr/share/nothing-here"]}, "/usr/share/nothing-here cannot be granted"),
    ],
)
def test_what_cannot_be_enforced_runs_nothing(fields: dict[str, object], reason: str, scratch: Path) -> None:
    done = run_child("print('ran')", Policy.from_fields({"scratch": str(scratch), **fields}))
    assert (done.code, done.out) == (125, "")
    assert done.reply["state"] == "refused"
    assert reason in str(done.reply["reason"])


def test_a_link_in_place_of_a_granted_folder_is_refused(scratch: Path) -> None:
    link = scratch / "link"
    link.symlink_to("/usr/share")
    done = run_child("print('ran')", Policy(scratch=str(scratch), read=(str(link),)))
    assert done.out == ""
    assert "symbolic link" in str(done.reply["reason"])


def test_input_that_stays_writable_is_refused(scratch: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file to another user")
    file = scratch / "input" / "data.csv"
    file.chmod(0o666)
    os.chown(file, 12345, 12345)  # the run cannot change its mode once it has another user
    os.chown(scratch, 65534, 65534)
    code = "from bot.tools.python_sandbox.child.restrict import restrict\n"
    code += "from bot.tools.python_sandbox.child.policy import Policy\n"
    code += "import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    code += (
        f"restrict(Policy(scratch={str(scratch)!r}, input={str(scratch / 'input')!r}, read=('/usr/share/zoneinfo',)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=Path(__file__).parents[2])
    assert b"could not be made read-only" in done.stderr


def test_a_process_with_two_threads_is_not_locked_in_by_half(scratch: Path) -> None:
    code = "import threading\nfrom bot.tools.python_sandbox.child.restrict import restrict\n"
    code += "from bot.tools.python_sandbox.child.policy import Policy\nhold = threading.Event()\n"
    code += "t = threading.Thread(target=hold.wait); t.start()\n"
    code += f"try: restrict(Policy(scratch={str(scratch)!r}))\nfinally: hold.set()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 1
    assert b"NotEnforced: the process has 2 threads" in done.stderr


def test_limits_read_back_inside_the_run_are_those_of_the_policy(scratch: Path) -> None:
    code = "import resource as r\nprint([r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in "
    code += "('AS', 'CPU', 'FSIZE', 'NOFILE', 'CORE', 'MEMLOCK', 'MSGQUEUE')])"
    done = run(scratch, code, memory_bytes=100 * MiB, cpu_s=3, file_bytes=MiB, open_files=40)
    memory = int(str(done.reply["address_space_bytes"])) + 100 * MiB
    measured = eval(done.out)
    # Little is loaded between the report and the limit.
    assert memory <= measured[0][0] == measured[0][1] < memory + 8 * MiB
    assert measured[1:] == [(3, 4), (MiB, MiB), (40, 40), (1, 1), (0, 0), (0, 0)]


def test_a_lower_limit_of_the_machine_stays(scratch: Path) -> None:
    import resource

    policy = Policy(scratch=str(scratch), open_files=500)
    code = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert run_child(code, policy).out == "(500, 500)\n"
    lowered = "import resource, runpy, sys\nresource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
    lowered += "from bot.tools.python_sandbox.child.restrict import restrict\n"
    lowered += "from bot.tools.python_sandbox.child.policy import Policy\n"
    lowered += f"restrict(Policy(scratch={str(scratch)!r}, open_files=500))\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", lowered], capture_output=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == b"(100, 100)\n", done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
