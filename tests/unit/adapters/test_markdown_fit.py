from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.chat import Limits
from adapters.markdown import CodeBlock, Document, ListBlock, Table, fit_markdown, parse_markdown, unit_size
from adapters.markdown.grapheme import is_boundary
from tests.unit.adapters.markdown_texts import balanced, capitals, documents


def fit(text: str, size: int = 200) -> tuple[str, ...]:
    return fit_markdown(text, Limits(text_max=size))


def test_a_text_that_fits_stays_whole() -> None:
    assert fit("# Title\n\nSome *text*.\n\n- a\n- b") == ("# Title\n\nSome *text*.\n\n- a\n- b",)


def test_a_blank_text_gives_no_part() -> None:
    assert fit("") == ()
    assert fit("\n \n\t\n") == ()


def test_two_thousand_newlines_before_a_character_give_one_part() -> None:
    assert fit("\n" * 2000 + "x") == ("x",)


def test_a_limit_that_could_not_hold_a_fence_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        fit_markdown("x", Limits(text_max=10))


def test_a_long_code_block_becomes_closed_blocks_of_the_same_language() -> None:
    code = "\n".join(f"print({n})" for n in range(300))
    parts = fit(f"Look:\n\n```py\n{code}\n```\n\nThat was it.", 2000)
    blocks = [b for part in parts for b in parse_markdown(part).blocks if isinstance(b, CodeBlock)]
    assert len(blocks) > 1
    assert {b.language for b in blocks} == {"py"}
    assert "\n".join(b.text for b in blocks) == code
    assert all(balanced(part) for part in parts)


def test_a_fence_with_a_longer_fence_inside_is_reopened_with_its_own_marker() -> None:
    inner = "\n".join(["```", *(f"line {n}" for n in range(40)), "```"])
    parts = fit(f"````md\n{inner}\n````", 120)
    assert len(parts) > 1
    texts = [b.text for part in parts for b in parse_markdown(part).blocks if isinstance(b, CodeBlock)]
    assert "\n".join(texts) == inner


def test_a_fence_that_is_never_closed_is_closed() -> None:
    assert fit("```sql\nselect 1") == ("```sql\nselect 1\n```",)


def test_a_table_is_cut_between_rows_and_repeats_its_header() -> None:
    rows = [f"| q{n} | {n} ms |" for n in range(60)]
    parts = fit("\n".join(["| query | mean |", "|---|---:|", *rows]), 300)
    tables = [b for part in parts for b in parse_markdown(part).blocks]
    assert len(tables) > 1
    assert all(isinstance(t, Table) for t in tables)
    assert all(part.startswith("| query | mean |\n|---|---:|\n") for part in parts)
    assert sum(len(t.rows) for t in tables if isinstance(t, Table)) == 60


def test_a_heading_moves_on_with_what_it_stands_above() -> None:
    parts = fit("x" * 150 + "\n\n## Next\n\n" + "y" * 150, 200)
    assert parts == ("x" * 150, "## Next\n\n" + "y" * 150)


def test_a_list_is_cut_between_items_and_keeps_its_numbers() -> None:
    parts = fit("\n".join(f"{n}. item number {n} of the list" for n in range(7, 40)), 200)
    assert len(parts) > 1
    first = parse_markdown(parts[1]).blocks[0]
    assert isinstance(first, ListBlock)
    assert first.start is not None
    assert first.start > 7
    assert [int(x) for x in re.findall(r"^(\d+)\.", "\n".join(parts), re.M)] == list(range(7, 40))


def test_a_cut_keeps_to_sentences_and_does_not_tear_a_link() -> None:
    text = "One sentence here. " * 9 + "See [the long manual page](https://example.test/a/very/long/path) for it. Done."
    for size in range(80, 240, 7):
        assert all(
            "[the long manual page](https://example.test/a/very/long/path)" in p or "[" not in p
            for p in fit(text, size)
        )


def test_text_after_a_cut_does_not_become_a_heading_or_a_list() -> None:
    text = "a" * 63 + " # not a heading and more of it " + "b" * 30 + " 1. no list either " + "c" * 50
    kinds = {type(b).__name__ for part in fit(text, 64) for b in parse_markdown(part).blocks}
    assert kinds == {"Paragraph"}


def test_graphemes_are_not_torn() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    flags = "\U0001f1e9\U0001f1ea"
    accented = "e\u0301"
    for cluster in (family, flags, accented):
        for part in fit(cluster * 200, 64):
            assert len(part) % len(cluster) == 0


def test_limits_count_in_the_units_of_the_platform() -> None:
    text = "\U0001f600" * 300
    for unit in ("chars", "utf16", "utf8"):
        parts = fit_markdown(text, Limits(text_max=100, unit=unit))
        assert "".join(parts) == text
        assert all(unit_size(unit)(p) <= 100 for p in parts)


def test_a_measure_of_the_rendering_is_kept() -> None:
    parts = fit_markdown("a & b " * 200, Limits(text_max=100), measure=lambda t: len(t.replace("&", "&amp;")))
    assert all(len(p.replace("&", "&amp;")) <= 100 for p in parts)
    assert " ".join(parts).split() == ("a & b " * 200).split()


def test_a_very_long_text_is_cut_in_bounded_time() -> None:
    parts = fit("word " * 12_000, 3500)
    assert len(" ".join(parts).split()) == 12_000


# -- properties ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(documents(), st.integers(64, 400))
def test_no_word_is_lost_or_doubled_and_every_part_fits(text: str, size: int) -> None:
    parts = fit(text, size)
    assert all(len(p) <= size for p in parts)
    assert all(p.strip() for p in parts)
    assert all(balanced(p) for p in parts)
    assert capitals("".join(parts)) == capitals(text)


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="ab \n#*_`~|>-1.)[](:\\&<\t\u4e2d\U0001f600e\u0301", max_size=600), st.sampled_from([64, 90, 200])
)
def test_any_text_is_cut_into_parts_that_fit(text: str, size: int) -> None:
    for unit in ("chars", "utf16", "utf8"):
        limits = Limits(text_max=size, unit=unit)
        measure = unit_size(limits.unit)
        parts = fit_markdown(text, limits)
        assert all(measure(p) <= size for p in parts)
        assert all(p.strip() for p in parts)
        letters = "".join(c for c in text if c in "ab\u4e2d\U0001f600")
        seen = "".join(c for p in parts for c in p if c in "ab\u4e2d\U0001f600")
        if "|" not in text and "`" not in text and "~" not in text:  # headers and languages repeat
            assert seen == letters


@given(st.text(max_size=300))
def test_parsing_never_fails(text: str) -> None:
    assert isinstance(parse_markdown(text), Document)


@given(st.text(min_size=1, max_size=60), st.data())
def test_there_is_no_boundary_before_a_combining_mark(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(text)))
    assert not is_boundary(text[:at] + "\u0301" + text[at:] + "x", at)
