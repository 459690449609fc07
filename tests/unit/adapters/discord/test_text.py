"""Canonical Markdown as Discord's: read back by an independent reader."""

from __future__ import annotations

import pytest

from adapters.discord.render import render_markdown
from tests.unit.adapters.discord.reader import Seen, read


def write(markdown: str, *mentions: str) -> str:
    return render_markdown(markdown, mentions).content


def see(markdown: str, *mentions: str) -> Seen:
    return read(write(markdown, *mentions))


def test_headings_have_three_levels_and_deeper_ones_are_bold() -> None:
    assert write("# A\n\n## B\n\n### C\n\n#### D\n\nText") == "# A\n## B\n### C\n**D**\nText"


def test_a_heading_keeps_the_sign_at_its_end() -> None:
    assert write("# In C\\#\n\nx") == "# In C\\#\nx"


def test_marks_of_a_line_are_discords() -> None:
    seen = see("**bold** _it_ ~~gone~~ ***both*** `code` a*b*c")
    assert seen.marked == [
        ("strong", "bold"),
        ("em", "it"),
        ("strike", "gone"),
        ("em", "both"),
        ("strong", "both"),
        ("em", "b"),
    ]
    assert seen.codes == ["code"]


@pytest.mark.parametrize(
    ("markdown", "marked"),
    [
        ("*a***b**", [("em", "a"), ("strong", "b")]),
        ("**a _b c_d_ e**", [("em", "b c_d"), ("strong", "a b c_d e")]),
        ("**a *b*c**", [("em", "b"), ("strong", "a b\u200bc")]),
        ("**a** **b**", [("strong", "a"), ("strong", "b")]),
        ("~~a~~**b**", [("strike", "a"), ("strong", "b")]),
        ("字**強調**字", [("strong", "強調")]),
        ("**`a*b` c**", []),
        ("*see `a*b`*", []),
    ],
)
def test_marks_that_meet_stay_apart(markdown: str, marked: list[tuple[str, str]]) -> None:
    assert sorted(see(markdown).marked) == sorted(marked)


@pytest.mark.parametrize("code", ["a", "a`b", "``", "a ``` b", "`", "```", "`a` ``b``", "x `"])
def test_a_code_span_shows_its_backticks_and_begins_no_block(code: str) -> None:
    ticks = "`" * 7
    seen = see(f"{ticks} {code} {ticks}")
    assert [found.replace("\u200b", "").strip() for found in seen.codes] == [code]
    assert seen.blocks == []


def test_spans_of_code_side_by_side_stay_two() -> None:
    assert see("`a`**`b`**`c`").codes == ["a", "b", "c"]


def test_code_keeps_its_language_and_never_ends_early() -> None:
    seen = see("````sql\nselect 1;\n```\n@everyone <@1>\n````\n\nafter")
    assert [(lang, code.replace("\u200b", "")) for lang, code in seen.blocks] == [
        ("sql", "select 1;\n```\n@everyone <@1>")
    ]
    assert seen.text.endswith("after")
    assert seen.live == []


def test_the_first_line_of_code_is_not_taken_for_its_language() -> None:
    assert see("```\nselect\n1\n```").blocks == [("", "select\n1")]
    assert see("```c++ title=x\nint i;\n```").blocks == [("c++", "int i;")]
    assert see("```{.x}\nint i;\n```").blocks == [("", "int i;")]


def test_blank_code_is_nothing() -> None:
    assert write("a\n\n```\n\n```\n\nb") == "a\n\nb"


def test_lists_are_nested_and_keep_their_numbers() -> None:
    written = write("3. three\n4. four\n   - a\n     - b\n   - c\n\nend")
    assert written == "3. three\n4. four\n   - a\n     - b\n   - c\n\nend"


def test_code_in_a_list_stands_at_the_margin_and_the_list_goes_on() -> None:
    written = write("1. one\n   ```py\n   x = 1\n   ```\n   more\n2. two")
    assert written == "1. one\n```py\nx = 1\n```\n   more\n2. two"


def test_quotes_have_one_level_and_what_is_quoted_in_them_keeps_its_sign() -> None:
    seen = see("> a\n> > b\n>\n> ```sql\n> select 1\n> ```\n\nc")
    assert "> b" in seen.text
    assert write("> a\n>\n> b") == "> a\n> \n> b"
    assert write("> ```sql\n> select 1\n> ```") == "> ```sql\n> select 1\n> ```"


def test_a_rule_is_a_line_that_is_seen() -> None:
    assert write("a\n\n---\n\nb") == "a\n\n────────────────\n\nb"


# -- links -----------------------------------------------------------------------------------------


def test_b046_an_address_that_is_its_own_label_is_written_bare() -> None:
    url = "https://ex.com/a_b?x=1&y=2"
    assert write(f"[{url}]({url})") == f"<{url}>"
    assert write(f"See {url}, please.") == f"See <{url}>, please."
    assert write(f"<{url}>") == f"<{url}>"


@pytest.mark.parametrize(
    ("markdown", "links"),
    [
        ("[docs](https://ex.test/a_b)", [("docs", "https://ex.test/a_b")]),
        ("[a [b] c](https://ex.test)", [("a (b) c", "https://ex.test")]),
        ("[x](<https://ex.test/a(b)c>)", [("x", "https://ex.test/a(b)c")]),
        ("![a picture](https://ex.test/x.png)", [("a picture", "https://ex.test/x.png")]),
        ("**[docs](https://ex.test/*x*)**", [("docs", "https://ex.test/%2Ax%2A")]),
        ("[docs at https://ex.test](https://ex.test)", [("https://ex.test", "https://ex.test")] * 2),
        ("[good.test](https://evil.test)", [("https://evil.test", "https://evil.test")]),
        ("[x](javascript:alert)", []),
        ("[x](discord://y)", []),
        ("[x](<@1>) [y](@everyone)", []),
        ("\\[text](https://evil.test)", [("https://evil.test", "https://evil.test")]),
        ("[mail](mailto:a@b.test)", []),
    ],
)
def test_links_lead_where_they_say(markdown: str, links: list[tuple[str, str]]) -> None:
    seen = see(markdown)
    assert seen.links == links
    assert seen.live == []


@pytest.mark.parametrize(
    "label",
    ["good\u200b.test", "good\uff0etest", "good\u2024test", "good\u3002test", "\u043f\u0440.\u0440\u0444", "10.0.0.1"],
)
def test_a_label_that_only_looks_like_another_host_stands_beside_the_address(label: str) -> None:
    assert see(f"[{label}](https://evil.test/x)").links == [("https://evil.test/x", "https://evil.test/x")]


def test_a_label_does_not_reach_over_what_follows_it_to_another_address() -> None:
    seen = see("[docs](https://ex.test) and ](https://evil.test)")
    assert seen.links == [("docs", "https://ex.test"), ("https://evil.test", "https://evil.test")]


@pytest.mark.parametrize("text", ["a <`x:/y>@here <@1>`", "<`b:/c>@everyone`", "&lt;`x](:/e-->@here <@1>`"])
def test_what_looks_like_an_address_does_not_let_mentions_out_of_code(text: str) -> None:
    seen = see(text)
    assert seen.live == []
    assert len(seen.codes) == 1


def test_a_mail_address_is_shown_beside_its_label() -> None:
    assert write("[the team](mailto:a@b.test) <c@d.test>") == "the team (a@b.test) c@d.test"


# -- mentions --------------------------------------------------------------------------------------


def test_only_people_of_the_reply_are_mentioned_and_only_in_running_text() -> None:
    rendered = render_markdown("<@1> <@!2> <@3> `<@1>`\n\n```\n<@2>\n```\n\n**<@2>**", {"1", "2", "4"})
    assert rendered.mentions == {"1", "2"}
    assert read(rendered.content).live == ["<@1>", "<@2>", "<@2>"]


def test_what_was_parted_by_marks_is_not_put_together_to_a_mention() -> None:
    for text in (
        "*a @*everyone* b*",
        "**a @**everyone** b**",
        "@[everyone](x:y)",
        "@every[one](x:y)",
        "<[@1](x:y)>",
        "[@](x:y)here",
    ):
        assert see(text).live == []


def test_b078_names_from_right_to_left_do_not_drag_their_neighbours() -> None:
    assert write("• שלום — 3 errors (12:00)") == "• \u2068שלום\u2069 — 3 errors (12:00)"
    assert "\u2068" not in write("```\nשלום — 3\n```")


def test_b079_characters_that_reorder_others_are_taken_out() -> None:
    assert write("see \u202eexe.cod\u202c and `\u202ex`") == "see exe.cod and `x`"
