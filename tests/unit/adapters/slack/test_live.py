from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack.live import delivered, fits_edit, fits_stream
from adapters.slack.streamed import StreamText

PIECES = st.lists(
    st.sampled_from(
        ["word ", "slow ", "**bold** ", "[page](https://ex.test/a) ", "a < b ", "<!here> ", "`x <y` ", "\n\n",
         "- item\n", "```sql\nselect 1;\n```\n", "| a | b |\n|---|---|\n| 1 | 2 |\n\n", "@here ", "数据库 ", "x_y "]
    ),
    min_size=1,
    max_size=25,
)  # fmt: skip


def letters(text: str) -> str:
    return "".join(c for c in text.replace("&lt;", "").replace("&gt;", "") if c.isalnum())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("one two", 7),
        ("see [the doc](https://ex", 4),
        ("it is **very", 6),
        ("```sql\nselect 1", 15),
        ("a < b", 5),
    ],
)
def test_what_a_stream_holds_back_is_not_delivered(text: str, count: int) -> None:
    out = StreamText().show(text)
    assert delivered(text, out) in (count, count - 1)  # a blank at the end counts or not
    assert delivered(text, "") == 0


@given(PIECES)
def test_what_is_sent_and_what_follows_make_the_whole(pieces: list[str]) -> None:
    text = "".join(pieces).strip()
    stream, out, source = StreamText(), "", ""
    for n in range(0, len(text), 7):
        source = text[:n].rstrip()
        out = stream.show(source)
    rest = text[delivered(source, out) :]
    assert letters(out + rest) == letters(text)


def test_only_what_fits_fits() -> None:
    assert fits_edit("x" * 3_900)
    assert not fits_edit("x" * 3_901)
    assert not fits_edit("é" * 2_000)
    assert not fits_edit("x" * 100_000)
    assert fits_stream("x" * 11_500)
    assert not fits_stream("x" * 11_501)
    assert not fits_stream("a < " * 2_500)
