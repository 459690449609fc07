"""Buttons: what they look like in Discord's JSON, and what their ids mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Button, Reply, ThreadRef
from adapters.discord.buttons import build_buttons, build_custom_id, build_stop, has_stop, parse_custom_id

THREAD = ThreadRef(platform="discord", workspace="1", channel="2", thread="3")


def reply(*buttons: Button, feedback: str = "") -> Reply:
    return Reply(thread=THREAD, text="x", key="r/1", buttons=buttons, feedback=feedback)


@given(st.from_regex(r"[a-z][a-z0-9_-]{0,30}", fullmatch=True), st.text(max_size=34))
def test_a_custom_id_is_read_back(name: str, value: str) -> None:
    assert parse_custom_id(build_custom_id(name, value)) == (name, value)


@pytest.mark.parametrize("text", ["", "approve", ":x", "Approve:1", "a b:1", "x" * 40 + ":1", "ok:" + "x" * 98])
def test_what_is_no_custom_id_of_ours_is_not_read(text: str) -> None:
    assert parse_custom_id(text) is None


def test_an_id_that_discord_would_refuse_is_refused_here() -> None:
    assert len(build_custom_id("approve", "x" * 92)) == 100
    with pytest.raises(ValueError, match="100 characters"):
        build_custom_id("approve", "x" * 93)
    with pytest.raises(ValueError, match="100 characters"):
        build_custom_id("approve", "\U0001f600" * 47)  # counted as Discord's clients count
    with pytest.raises(ValueError, match="not a name"):
        build_custom_id("a:b", "x")


def test_buttons_stand_in_rows_of_five_and_thumbs_in_the_last_one() -> None:
    buttons = [Button(name="pick", label=f"No. {n}", value=str(n)) for n in range(30)]
    rows = build_buttons(reply(*buttons, feedback="run-1"))
    assert [len(row["components"]) for row in rows] == [5, 5, 5, 5, 2]  # type: ignore[arg-type]
    ids = [button["custom_id"] for row in rows for button in row["components"]]  # type: ignore[attr-defined]
    assert ids == [*(f"pick:{n}" for n in range(20)), "feedback:run-1/up", "feedback:run-1/down"]
    assert build_buttons(reply()) == ()


def test_a_button_has_a_label_and_a_style_that_discord_takes() -> None:
    (row,) = build_buttons(
        reply(
            Button(name="approve", label="Run it", value="a1", style="primary"),
            Button(name="deny", label="No\n" + "o" * 90, value="a1", style="danger"),
            Button(name="later", label="", value="a1"),
            Button(name="approve", label="Run it again", value="a1"),
        )
    )
    assert row["type"] == 1
    buttons = list(row["components"])  # type: ignore[call-overload]
    assert [b["style"] for b in buttons] == [1, 4, 2]
    assert [b["label"] for b in buttons] == ["Run it", "No " + "o" * 77, "later"]
    assert {b["type"] for b in buttons} == {2}


def test_the_stop_button_is_known_by_its_id() -> None:
    message = {"components": [*build_buttons(reply(feedback="r")), *build_stop()]}
    assert has_stop(message)
    assert not has_stop({"components": list(build_buttons(reply(feedback="r")))})
    assert not has_stop({"components": "stop:"})
    assert not has_stop({})
    assert parse_custom_id("stop:") == ("stop", "")
