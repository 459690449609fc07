"""The policy as a value, and the messages it travels in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.python_sandbox.child.policy import Policy, default_read_paths
from bot.tools.python_sandbox.child.wire import parse_json, read_message, render_json, write_message

NAMES = st.text(
    alphabet=st.characters(min_codepoint=33, exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1
)
PATHS = st.lists(NAMES.filter(lambda name: name not in {".", ".."}), min_size=3, max_size=5).map(
    lambda parts: "/a/" + "/".join(parts)
)


@given(scratch=PATHS, read=st.lists(PATHS).map(tuple), seconds=st.integers(1, 60), native=st.booleans())
def test_a_policy_survives_the_way_to_the_child(
    scratch: str, read: tuple[str, ...], seconds: int, native: bool
) -> None:
    policy = Policy(
        scratch=scratch,
        read=read,
        input=scratch + "/input",
        cpu_s=seconds,
        native_libraries=native,
        without=("seccomp:clone",),
    )
    assert Policy.from_json(policy.to_json()) == policy
    assert hash(Policy.from_json(policy.to_json().encode())) == hash(policy)
    assert policy.replace_read(()).read == ()


def test_a_policy_cannot_be_changed() -> None:
    policy = Policy(scratch="/a/b")
    with pytest.raises(AttributeError, match="cannot be changed"):
        policy.scratch = "/"
    assert policy.has("seccomp")
    assert "scratch='/a/b'" in repr(policy)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "scratch is missing"),
        ({"scratch": "relative"}, "'relative' is not an absolute path"),
        ({"scratch": "/a/../b"}, "without '..'"),
        ({"scratch": "/a\0b"}, "not an absolute path"),
        ({"scratch": "/tmp"}, "opens too much"),
        ({"scratch": "/tmp/"}, "opens too much"),
        ({"scratch": "/a/b", "read": ["/"]}, "read '/' opens too much"),
        ({"scratch": "/a/b", "read": ["/etc"]}, "opens too much"),
        ({"scratch": "/a/b", "read": ["/etc/ssl"]}, "opens too much"),
        ({"scratch": "/a/b", "read": ["/proc/self"]}, "opens too much"),
        ({"scratch": "/a/b", "read": ["/run/docker.sock"]}, "opens too much"),
        ({"scratch": "/a/b", "input": "/c"}, "is not inside scratch"),
        ({"scratch": "/a/b", "input": "/a/bc"}, "is not inside scratch"),
        ({"scratch": "/a/b", "memory_bytes": 0}, "memory_bytes must be greater than 0"),
        ({"scratch": "/a/b", "cpu_s": 1.5}, "cpu_s must be int"),
        ({"scratch": "/a/b", "cpu_s": True}, "cpu_s must be int"),
        ({"scratch": "/a/b", "read": "/usr/lib"}, "read must be tuple"),
        ({"scratch": "/a/b", "uid": 65534}, "uid and gid go together"),
        ({"scratch": "/a/b", "uid": 0, "gid": 0}, "neither may be root's"),
        ({"scratch": "/a/b", "network": True}, "no field called 'network'"),
        ({"scratch": "/a/b", "without": ["everything"]}, "no rule called 'everything'"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason) if "(" in reason else reason):
        Policy.from_json(json.dumps(fields))


def test_the_interpreter_may_read_its_own_folders_and_nothing_wider() -> None:
    paths = default_read_paths()
    assert os.path.dirname(os.path.realpath(os.__file__)) in paths
    assert not any(path == "/" or path.startswith(("/etc", "/proc", "/run", "/sys")) for path in paths)
    Policy(scratch="/a/b", read=paths)
    # An editable install of the bot is on sys.path, but outside of the interpreter's prefix.
    repository = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
    assert not any(repository == path or repository.startswith(path + "/") for path in paths)


def test_a_library_that_was_preloaded_from_anywhere_opens_its_file_and_not_its_folder(tmp_path: Path) -> None:
    libraries = Path(sysconfig.get_config_var("DESTSHARED")).glob("_*.so")
    copy = tmp_path / "preloaded.so"
    copy.write_bytes(min(libraries, key=lambda path: path.stat().st_size).read_bytes())
    code = "import ctypes, sys\nfrom bot.tools.python_sandbox.child.policy import default_read_paths\n"
    code += "ctypes.CDLL(sys.argv[1])\nprint(*default_read_paths(), sep='\\n')"
    command = [sys.executable, "-c", code, str(copy)]
    paths = subprocess.run(command, capture_output=True, check=True, text=True, cwd=Path(__file__).parents[2]).stdout
    assert str(copy) in paths.splitlines()
    assert str(tmp_path) not in paths.splitlines()


@given(st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.text() | st.integers()))
def test_messages_are_json_that_both_sides_read(message: dict[str, str | int]) -> None:
    text = render_json(message)
    assert json.loads(text) == message
    assert parse_json(text) == message
    assert parse_json(json.dumps(message, indent=2)) == message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda item: st.lists(item) | st.dictionaries(st.text(), item),
        max_leaves=8,
    )
)
def test_the_scanner_reads_what_json_writes(value: object) -> None:
    assert parse_json(json.dumps({"value": value})) == {"value": value}


@given(st.text())
def test_anything_else_is_a_value_error(text: str) -> None:
    try:
        expected = json.loads(text.strip())
    except ValueError:
        expected = None
    if not isinstance(expected, dict):
        with pytest.raises(ValueError, match=r"\S"):
            parse_json(text)


def test_a_message_goes_through_a_pipe_whole() -> None:
    reader, writer = os.pipe()
    try:
        write_message(writer, {"reason": "慢", "bytes": 1 << 40})
        os.close(writer)
        assert read_message(reader) == {"reason": "慢", "bytes": 1 << 40}
    finally:
        os.close(reader)
