from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapters.discord.content import TITLE_MAX, build_title


def test_a_thread_is_named_by_the_first_line_that_says_something() -> None:
    assert build_title("\n```\n## **Why** is  `orders` slow?\nthanks", "Alice") == "Why** is `orders` slow?"
    assert build_title("为什么慢？", "Alice") == "为什么慢？"


def test_a_question_without_words_is_named_by_who_asked() -> None:
    assert build_title("🙃 !!", "Alice") == "Question from Alice"
    assert build_title("", "") == "Question from"


def test_a_long_name_is_cut_and_says_so() -> None:
    title = build_title("word " * 40, "Alice")
    assert len(title) <= TITLE_MAX
    assert title.endswith("word…")


@given(st.text(st.characters(), max_size=300), st.text(max_size=40))
def test_a_name_always_fits_and_holds_no_controls(text: str, author: str) -> None:
    title = build_title(text, author)
    assert 1 <= len(title) <= TITLE_MAX
    assert title == title.strip()
    assert not any(c in "\n\r\t\u202e\u2066\u200b" or "\ud800" <= c <= "\udfff" for c in title)
