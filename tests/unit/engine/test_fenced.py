"""Reading the JSON object of a reply: mended where nothing is lost, refused where it would be a guess."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.llm.fenced import NotOneObject, parse_object
from tests.stopwatch import least_cpu_s

TEXT = st.text(max_size=12) | st.sampled_from(
    ["it's", 'he said "hi"', "// no", "/* x */", "# y", "```", "a\\b", "True", "{,}"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)


def dump_loosely(value: object) -> str:
    """Write a value as a careless model does: single quotes, Python's words, comments, commas at the end."""
    match value:
        case dict():
            return "{" + "".join(f" {dump_loosely(k)}: {dump_loosely(v)}, // ok {{\n" for k, v in value.items()) + "}"
        case list():
            return "[ /* ] */" + "".join(f"{dump_loosely(v)} ," for v in value) + "]"
        case str():
            kept = {"'": "\\'", '"': '"', "\n": "\n"}
            return "'" + "".join(kept.get(c) or json.dumps(c, ensure_ascii=False)[1:-1] for c in value) + "'"
        case _:
            return repr(value)


@given(OBJECTS)
def test_a_valid_object_is_never_changed(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value)) == value
    assert parse_object(json.dumps(value, ensure_ascii=False, indent=2)) == value


AROUND = ("```json\n%s\n```", "Here it is:\n```\n%s\n```\nDone.", "Action: %s .", "<think>a {b</think>%s")


@given(OBJECTS, st.sampled_from(AROUND))
def test_a_fence_and_prose_around_an_object_change_nothing(value: dict[str, object], around: str) -> None:
    assert parse_object(around % json.dumps(value)) == value


@given(OBJECTS)
def test_what_is_mended_without_loss_reads_as_it_was_meant(value: dict[str, object]) -> None:
    assert parse_object(dump_loosely(value)) == value


@settings(max_examples=60)
@given(OBJECTS, st.booleans())
def test_bug_27_every_proper_prefix_of_an_object_is_refused(value: dict[str, object], loose: bool) -> None:
    written = dump_loosely(value) if loose else json.dumps(value, ensure_ascii=False)
    for end in range(len(written)):
        with pytest.raises(NotOneObject):
            parse_object(written[:end])


@given(st.text(alphabet="{}[]\"',:\\/*# \n01eE.-TrueNon`", max_size=60))
def test_any_text_is_an_object_or_refused(text: str) -> None:
    with contextlib.suppress(NotOneObject):
        assert isinstance(parse_object("{" + text + "}"), dict)


@pytest.mark.parametrize(
    "text",
    [
        "no object at all",
        '["a"]',
        '[{"a": 1}]',
        '[{"a": 1}',
        '[1, {"a": 1}]',
        '{"a": 1} {"b": 2}',
        'Action: {"a": 1}\nObservation: ok\nAction: {"a": 2}',
        '{"a": 1, "a": 2}',
        '{"a": 1 "b": 2}',
        '{"a" 1}',
        "{a: 1}",
        '{"a": "he said "hi" twice"}',
        '{"a": b}',
        '{"a": 1 2}',
        '{"a": "b" "c"}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": nullNone}',
        '{"a": [,]}',
        '{"a": [1,,]}',
        "{,}",
        '{"a": ,}',
        '{"a": [1}',
        '{"a": 1]',
        '{"a": "\\d"}',
        '{"a": 1 // }',
        '{"a": 1 /* }',
        '{broken {"a": 1}}',
        '"{\\"a\\": 1}"',
        '{"a": ' + "9" * 5_000 + "}",
        '{"a":' * 5_000 + "1" + "}" * 5_000,
    ],
)
def test_what_would_need_a_guess_is_refused(text: str) -> None:
    with pytest.raises(NotOneObject):
        parse_object(text)


def test_bug_27_a_statement_that_was_cut_off_is_not_closed() -> None:
    with pytest.raises(NotOneObject, match="breaks off"):
        parse_object("""{"sql":"DELETE FROM orders WHERE created_at < now() - interval '90""")


def test_a_code_fence_inside_a_string_is_a_part_of_it() -> None:
    text = '```json\n{"answer": "run\n```sql\nSELECT 1\n```\nnow", \'n\': 1,}\n```'
    assert parse_object(text) == {"answer": "run\n```sql\nSELECT 1\n```\nnow", "n": 1}


def test_64_kb_of_anything_take_far_less_than_a_second() -> None:
    for text in ("{" * 64_000, '{"' * 32_000, "{'a':'" + "\\" * 64_000, "{/*" * 21_000, '{ "a":1,' + "[," * 32_000):

        def ask(text: str = text) -> None:
            with pytest.raises(NotOneObject):
                parse_object(text)

        assert least_cpu_s(ask, enough_s=1.0) <= 1.0
