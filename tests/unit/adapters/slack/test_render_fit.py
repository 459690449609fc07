"""Answers that need several messages, and drafts that are edited: bounded, balanced, nothing lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.markdown import CodeBlock, parse_markdown
from adapters.slack.blocks import load_of, shown_text
from adapters.slack.render import MessageLimits, TableLimits, fit_message, render_edit, render_message
from tests.servers.slack.blocks import check_blocks
from tests.servers.slack.pings import find_pings
from tests.stopwatch import least_cpu_s
from tests.unit.adapters.markdown_texts import MARKUP, NASTY, balanced, capitals, documents

SMALL = MessageLimits(blocks=8, chars=400, tables=TableLimits(rows=20, columns=4, chars=300), parts=500)


def shown(markdown: str, limits: MessageLimits = SMALL, reserve_blocks: int = 0) -> str:
    """All characters of one message and of its files."""
    rendered = render_message(markdown, limits=limits, reserve_blocks=reserve_blocks)
    check_blocks(list(rendered.blocks), most=limits.blocks - reserve_blocks)
    assert load_of(rendered.blocks).chars <= limits.chars
    assert load_of(rendered.blocks).table_chars <= limits.tables.chars
    assert all(file.name != "answer.md" for file in rendered.files)
    seen = shown_text(rendered.blocks) if rendered.blocks else rendered.text
    return seen + "".join(file.content for file in rendered.files)


def test_a_short_answer_is_one_part() -> None:
    assert fit_message("# Title\n\nText.").parts == ("# Title\n\nText.",)
    assert fit_message(" \n").parts == ()


def test_b042_every_message_stays_within_the_ceiling_of_all_its_blocks() -> None:
    fitted = fit_message("x" * 7000 + "\n\n" + "y" * 7000 + "\n\n" + "z" * 3001)
    assert len(fitted.parts) == 2
    for part in fitted.parts:
        rendered = render_message(part, reserve_blocks=2)
        check_blocks(list(rendered.blocks))
        assert load_of(rendered.blocks).chars <= 12_000
        assert rendered.files == ()


def test_b037_each_part_of_a_code_block_is_a_block_of_the_same_language() -> None:
    code = "\n".join(f"print({n})  # {'x' * 50}" for n in range(400))
    fitted = fit_message(f"Look:\n\n```py\n{code}\n```\n\nThat was it.")
    assert len(fitted.parts) == 4
    found = [b for part in fitted.parts for b in parse_markdown(part).blocks if isinstance(b, CodeBlock)]
    assert "\n".join(b.text for b in found) == code
    sent = [e for part in fitted.parts for b in render_message(part).blocks for e in b["elements"]]
    assert [e.get("language") for e in sent if e["type"] == "rich_text_preformatted"] == ["python"] * 3


def test_b039_a_link_at_the_edge_of_a_message_is_not_torn() -> None:
    link = "[the manual](https://ex.test/a/very/long/path)"
    for size in range(150, 260, 7):
        fitted = fit_message("word " * 30 + link + " and " + "more " * 30, MessageLimits(chars=size))
        assert sum(link in part for part in fitted.parts) == 1


def test_b040_parts_are_measured_as_they_are_rendered_and_none_is_blank() -> None:
    for text in ("<@everyone> & " * 1200, "\n" * 2000 + "x"):
        fitted = fit_message(text)
        assert all(part.strip() for part in fitted.parts)
        for part in fitted.parts:
            assert render_message(part, reserve_blocks=1).files == ()


def test_tables_are_spread_over_messages_so_that_each_is_a_table_block() -> None:
    table = "| name | n |\n|---|---:|\n" + "".join(f"| {'x' * 60} | {n} |\n" for n in range(90))
    fitted = fit_message("\n\n".join([table] * 4))
    assert len(fitted.parts) == 4
    assert [[b["type"] for b in render_message(part).blocks] for part in fitted.parts] == [["table"]] * 4


def test_a_reference_is_a_link_in_whichever_part_it_stands() -> None:
    text = "[r]: https://ex.test/r\n\n" + "\n\n".join(f"{'word ' * 40}[see][R] {n}" for n in range(9)) + "\n\n[r]"
    fitted = fit_message(text, SMALL)
    assert len(fitted.parts) > 3
    links = [
        span["url"]
        for part in fitted.parts
        for block in render_message(part, limits=SMALL, reserve_blocks=1).blocks
        for element in block["elements"]
        for span in element["elements"]
        if span["type"] == "link"
    ]
    assert links == ["https://ex.test/r"] * 10


def test_what_is_beyond_the_ceilings_is_a_file_that_the_last_part_names() -> None:
    text = "\n\n".join(f"## Part {n}\n\n```sql\nselect {n};\n```\n\n{'word ' * 100}" for n in range(120))
    fitted = fit_message(text)
    assert 40_000 - 1_000 < sum(map(len, fitted.parts)) <= 40_200
    assert len(fitted.parts) <= 12
    assert f"({len(fitted.tail):,} characters) is in the attached file answer.md" in fitted.parts[-1]
    assert not any("answer.md" in part for part in fitted.parts[:-1])
    whole = "\n".join([*fitted.parts, fitted.tail])
    assert [int(n) for n in re.findall(r"Part (\d+)", whole)] == list(range(120))
    assert whole.count("word") == 12_000
    assert all(balanced(part) for part in (*fitted.parts, fitted.tail))
    assert all(render_message(part, reserve_blocks=2).files == () for part in fitted.parts)


def test_more_parts_than_a_thread_should_get_are_a_file_too() -> None:
    fitted = fit_message("\n\n".join("x" * 300 for _ in range(30)), MessageLimits(chars=400, parts=3))
    assert len(fitted.parts) == 3
    assert "answer.md" in fitted.parts[-1]
    assert (("".join(fitted.parts)) + fitted.tail).count("x") == 9000 + fitted.parts[-1].count("x", -70)


@settings(max_examples=60, deadline=None)
@given(documents(), st.sampled_from([0, 3]))
def test_no_word_is_lost_or_doubled_and_every_message_is_taken(text: str, few: int) -> None:
    fitted = fit_message(text, SMALL, reserve_blocks=few)
    assert all(balanced(part) for part in fitted.parts)
    assert capitals("".join(shown(part, reserve_blocks=few) for part in fitted.parts)) == capitals(text)


@settings(max_examples=60, deadline=None)
@given(documents(), st.integers(1, 5), st.integers(300, 3000))
def test_no_word_is_lost_in_the_file_either(text: str, parts: int, total: int) -> None:
    limits = MessageLimits(chars=400, parts=parts, total_chars=total)
    fitted = fit_message(text, limits)
    assert len(fitted.parts) <= parts
    assert all(balanced(part) for part in (*fitted.parts, fitted.tail))
    seen = "".join(shown(part, limits) for part in fitted.parts) + fitted.tail
    assert capitals(seen) == capitals(text)


@settings(max_examples=150, deadline=None)
@given(MARKUP)
def test_every_part_of_anything_is_one_message(text: str) -> None:
    for part in fit_message(text, SMALL).parts:
        rendered = render_message(part, {"U1"}, limits=SMALL, reserve_blocks=1)
        check_blocks(list(rendered.blocks))
        assert load_of(rendered.blocks).chars <= SMALL.chars
        assert find_pings({"text": rendered.text, "blocks": list(rendered.blocks)}) <= {"U1"}


# -- drafts that are edited --------------------------------------------------------------------------


def test_b041_an_edit_stays_below_what_slack_takes_and_is_cut_visibly() -> None:
    for text in ("word " * 2000, "数量" * 4000, "a & b < " * 900, "x" * 9000):
        edit = render_edit(text)
        assert 3_000 < len(edit.encode()) <= 3800
        assert edit.endswith("…")
    assert render_edit("It is *done*.") == "It is _done_."


def test_a_draft_that_ends_in_code_closes_it() -> None:
    edit = render_edit("Look:\n```py\n" + "print(1)\n" * 900)
    assert edit.startswith("Look:\n\n```\nprint(1)\n")
    assert edit.endswith("\n```…")
    assert edit.count("```") == 2


def test_a_draft_tears_no_grapheme() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert set(render_edit(family * 400).removesuffix("…").split(family)) == {""}


@settings(max_examples=150, deadline=None)
@given(st.one_of(MARKUP, st.sampled_from(NASTY)), st.integers(1, 40), st.integers(100, 3800))
def test_any_draft_fits_and_pings_nobody(text: str, times: int, limit: int) -> None:
    edit = render_edit(text * times, {"U1"}, limit_bytes=limit)
    assert len(edit.encode()) <= limit
    assert edit.count("```") % 2 == 0
    assert find_pings({"text": edit}) <= {"U1"}


# -- speed -------------------------------------------------------------------------------------------


def build_long_answer(size: int) -> str:
    """An answer with a bit of everything."""
    parts = [
        f"## Part {n}\n\nSome **bold** words, `code`, and [a link](https://ex.test/{n}) in a paragraph. " + "word " * 60
        + "\n\n- one\n  - two\n- three\n\n```sql\n" + "select 1 from t where x < 2;\n" * 12
        + "```\n\n| query | mean |\n|---|--:|\n" + "| select **x** | 12 ms |\n" * 10
        for n in range(size // 900)
    ]  # fmt: skip
    return "\n".join(parts)[:size]


@pytest.mark.parametrize(
    "text",
    [
        build_long_answer(60_000),
        "word " * 12_000,
        "```\n" + "select 1;\n" * 6_000 + "```",
        "- item of a list\n" * 3_500,
    ],
)
def test_a_very_long_answer_is_rendered_in_bounded_time(text: str) -> None:
    def render() -> None:
        for part in fit_message(text).parts:
            render_message(part)

    assert least_cpu_s(render, enough_s=2.0) <= 2.0  # 0.2 s on the machine of the benchmarks
