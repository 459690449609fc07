"""Texts of strangers become one line, or clean lines, or are decoded, whatever they are."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.research.text import clean_line, clean_lines, decode

ANY = st.text(st.characters(codec="utf-8"), max_size=300)


@given(text=ANY, most=st.integers(min_value=1, max_value=100))
def test_a_line_is_one_line_of_bounded_length_that_links_nowhere(text: str, most: int) -> None:
    line = clean_line(text, most)
    assert len(line) <= most
    assert "](" not in line
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(c) == "Cc" for c in line)


@given(text=ANY)
def test_lines_keep_what_is_seen_and_no_control(text: str) -> None:
    found = clean_lines(text)
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in found)
    assert "\n\n\n" not in found
    assert [c for c in found if c.isalpha() and c.isascii()] == [c for c in text if c.isalpha() and c.isascii()]


def test_tags_of_search_services_go_and_generic_types_stay() -> None:
    told = clean_line("It <strong>tracks</strong> &quot;and&quot; vector<T> a&lt;b&gt;", 100)
    assert told == 'It tracks "and" vector<T> a<b>'
    assert clean_line("<https://evil.example|Deploy succeeded> now", 100) == "now"
    assert clean_line("[Deploy succeeded](https://evil.example)", 100) == "[Deploy succeeded] (https://evil.example)"


def test_code_keeps_its_indentation_and_prose_loses_its_runs_of_spaces() -> None:
    assert clean_lines("a   b\r\n    if x:\r\n\r\n\r\n\r\nend  ") == "a b\n    if x:\n\nend"


@given(body=st.binary(max_size=300), declared=st.text(max_size=20), cut=st.booleans())
def test_decoding_never_fails(body: bytes, declared: str, cut: bool) -> None:
    assert isinstance(decode(body, declared, cut=cut), str)


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufeff\x00"), min_size=1, max_size=100))
@pytest.mark.parametrize("declared", ["", "utf-8", "iso-8859-1", "windows-1251", "nonsense"])
def test_utf_8_is_read_as_that_whatever_is_declared(text: str, declared: str) -> None:
    assert decode(text.encode(), declared, cut=False) == text


def test_a_character_that_was_cut_off_at_the_end_is_no_reason_to_doubt() -> None:
    body = "Größe".encode()[:4]
    assert decode(body, "", cut=True) == "Grö"
    assert decode(body[:3], "", cut=True) == "Gr"


@pytest.mark.parametrize(
    ("body", "declared", "text"),
    [
        ("€".encode("cp1252"), "iso-8859-1", "€"),
        ("数据".encode("gb18030"), "gb2312", "数据"),
        ("データ".encode("shift_jis"), "Shift_JIS", "データ"),
        ("データ".encode("iso2022_jp"), "iso-2022-jp", "データ"),
        ("дата".encode("koi8-r"), "koi8-r", "дата"),
        (b"\xef\xbb\xbfx", "utf-16", "x"),
        ("größer".encode("cp1252"), "punycode", "größer"),
        (b'<meta charset="utf-16">\xfc', "", '<meta charset="utf-16">ü'),
    ],
)
def test_other_encodings_are_read_as_declared(body: bytes, declared: str, text: str) -> None:
    assert decode(body, declared, cut=False) == text
