"""What follows a headline: posts that fit, files at the end, and a history that can be sent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Attachment, Limits, ThreadRef
from agent_core.llm.types import ModelMessage, ToolCall
from agent_core.llm.wire import load_message
from agent_core.runtime.state import RunRecord
from bot.answer import Answer, address_answer, build_outcome
from bot.jobs.sequel import build_opening, dump_sequel, has_posts
from bot.presenter import load_reply
from bot.storage.jobs import Opening
from bot.turn import Turn

THREAD = ThreadRef(platform="slack", workspace="T1", channel="C1", thread="1700000000.000100")
NOW = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
FILES = (Attachment(name="a.csv", content="x\n"), Attachment(name="b.png", content="AAAA", encoding="base64"))


def open_it(body: str, *, limits: Limits | None = None) -> Opening:
    return build_opening(body, thread=THREAD, limits=limits or Limits(text_max=4_000), run_id="r1", now=NOW)


def test_the_body_follows_in_parts_and_the_last_one_has_the_files_and_the_thumbs() -> None:
    text = "\n\n".join(f"Paragraph {n} says something about the database." for n in range(60))
    opening = open_it(dump_sequel(text, files=FILES), limits=Limits(text_max=800))
    replies = [load_reply(row.body) for row in opening.outbox]
    assert len(replies) > 2
    assert (
        [r.key for r in replies]
        == [row.key for row in opening.outbox]
        == [f"r1/body/{n}" for n in range(1, len(replies) + 1)]
    )
    assert {row.run_id for row in opening.outbox} == {"r1"}
    assert {row.thread_key for row in opening.outbox} == {THREAD.key} == {opening.thread_key}
    assert [r.files for r in replies] == [()] * (len(replies) - 1) + [FILES]
    assert [r.feedback for r in replies] == [""] * (len(replies) - 1) + ["r1"]
    assert all(len(r.text) <= 800 for r in replies)
    shown = "\n".join(r.text for r in replies)
    assert all(f"Paragraph {n} says" in shown for n in range(60))


def test_no_key_of_the_body_is_that_of_the_headline() -> None:
    assert "r1/1" not in {row.key for row in open_it(dump_sequel("body")).outbox}


def test_a_report_without_a_body_posts_nothing_and_still_begins_its_thread() -> None:
    body = dump_sequel("", history=[(ModelMessage(role="user", content="task"), 5)], outputs=[("a1_1", "{}")])
    opening = open_it(body)
    assert opening.outbox == ()
    assert [m.tokens for m in opening.messages] == [5]
    assert opening.outputs == (("a1_1", "{}"),)
    assert not has_posts(body)


def test_files_alone_are_posted_by_their_names() -> None:
    body = dump_sequel("", files=FILES)
    (row,) = open_it(body).outbox
    assert load_reply(row.body).text == "`a.csv`, `b.png`"
    assert has_posts(body)
    assert not has_posts("")


def test_something_else_is_refused() -> None:
    for body in ("", "{}", "[]", '{"text": 3}'):
        with pytest.raises(ValueError, match="validation error"):
            open_it(body)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
MESSAGES = st.builds(
    ModelMessage,
    role=st.sampled_from(["user", "assistant", "tool"]),
    content=TEXTS,
    tool_calls=st.lists(st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=TEXTS), max_size=2).map(tuple),
    tool_call_id=st.none() | TEXTS,
)


@given(st.lists(st.tuples(MESSAGES, st.integers(0, 10**6)), max_size=4), st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_history_and_outputs_come_back_as_they_were(
    history: list[tuple[ModelMessage, int]], outputs: list[tuple[str, str]]
) -> None:
    opening = open_it(dump_sequel("body", history=history, outputs=outputs))
    assert [(load_message(m.body), m.tokens) for m in opening.messages] == history
    assert [m.role for m in opening.messages] == [m.role for m, _ in history]
    assert list(opening.outputs) == outputs


def answer_with(sequel: str) -> Answer:
    record = RunRecord(run_id="r1", agent="supervisor", query="", started_at=NOW, answer="found")
    return Answer(text="headline", record=record, sequel=sequel)


def test_a_report_is_rated_at_its_end_and_its_headline_only_where_it_is_all() -> None:
    turn = Turn(thread=THREAD, callers=())
    assert address_answer(answer_with(dump_sequel("the body")), turn, "r1").feedback == ""
    assert address_answer(answer_with(dump_sequel("")), turn, "r1").feedback == "r1"
    assert address_answer(answer_with(""), turn, "r1").feedback == "r1"


def test_the_sequel_ends_with_the_run() -> None:
    body = dump_sequel("the body")
    assert build_outcome(answer_with(body), THREAD.key, (), NOW).sequel == body
