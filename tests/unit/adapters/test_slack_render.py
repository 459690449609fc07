from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.chat import Limits
from adapters.markdown import fit_markdown
from adapters.slack.render import TEXT_CUT, escape, render_mrkdwn

ANGLE = re.compile(r"<([^<>]*)>")
LINK = re.compile(r"(?:https?://|mailto:)[^|]*(?:\|.*)?", re.I | re.S)

PINGS = "<!channel> <!here|x> <!everyone> <!subteam^S1|@dbas> <@U2> <#C1|ops> <!date^1^{date}|x>"


def live(text: str) -> list[str]:
    """What Slack would act on: everything in angle brackets that is no link."""
    return [inner for inner in ANGLE.findall(text) if not LINK.fullmatch(inner)]


@pytest.mark.parametrize(
    "markdown",
    [
        PINGS,
        f"# {PINGS}",
        f"**{PINGS}** _{PINGS}_ ~~{PINGS}~~",
        f"`{PINGS}`",
        f"```\n{PINGS}\n```",
        f"    {PINGS}",
        f"> {PINGS}",
        f"- {PINGS}\n  1. {PINGS}",
        f"| {PINGS.replace('|', '!')} | b |\n|---|---|\n| {PINGS.replace('|', '!')} | c |",
        f"[{PINGS}](https://ex.test)",
        f"![{PINGS}](https://ex.test)",
        "[x](!channel) [x](<!here>) [x](@U2) [a](https://ex.test/<!channel>) [b](<https://ex.test/ <!here>>)",
        "&lt;!channel&gt; &#60;!here&#62; \\<!channel\\>",
        "[r]\n\n[r]: https://ex.test/?a=<!channel> '<!here>'",
    ],
)
def test_no_construct_lets_a_ping_through(markdown: str) -> None:
    rendered = render_mrkdwn(markdown)
    assert live(rendered) == []
    assert "channel" in rendered or "ex.test" in rendered


def test_only_listed_people_are_mentioned() -> None:
    assert render_mrkdwn("<@U1> and <@U2>", {"U1"}) == "<@U1> and &lt;@U2&gt;"


def test_a_listed_person_is_not_mentioned_from_code_or_a_label() -> None:
    rendered = render_mrkdwn("`<@U1>` [<@U1>](https://ex.test)\n\n```\n<@U1>\n```", {"U1"})
    assert live(rendered) == []


def test_words_that_look_like_mentions_stay_words() -> None:
    assert render_mrkdwn("@channel @everyone #general") == "@channel @everyone #general"


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# Slow *queries*", "*Slow _queries_*"),
        ("**a** _b_ ~~c~~ `d`", "*a* _b_ ~c~ `d`"),
        ("***both***", "_*both*_"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("`**x**`", "`**x**`"),
        ("です**強調**です", "です\u200b*強調*\u200bです"),
        ("**Status:**OK", "*Status:*\u200bOK"),
        ("**注意：**不要", "*注意：*\u200b不要"),
        ("\\*\\*kept\\*\\*", "**kept**"),
        ("one\ntwo", "one\ntwo"),
        ("[q](https://ex.com/?a=1&b=2)", "<https://ex.com/?a=1&amp;b=2|q>"),
        ("<https://ex.com/a_b?x=1&y=2>", "<https://ex.com/a_b?x=1&amp;y=2>"),
        ("https://ex.com/a_b_c?x=1&y=2", "https://ex.com/a_b_c?x=1&amp;y=2"),
        ("[write](mailto:a@b.test)", "<mailto:a@b.test|write>"),
        ("[x](ftp://ex.test/a)", "x (ftp://ex.test/a)"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("[https://good.test](https://evil.test)", "https://good.test (<https://evil.test>)"),
        ("[good.test/login](https://evil.test)", "good.test/login (<https://evil.test>)"),
        ("[www.good.test](https://good.test/)", "<https://good.test/|www.good.test>"),
        ("<https://evil.test|Deploy>", "https://evil.test|Deploy (<https://evil.test%7CDeploy>)"),
        ("> one\n> two", "> one\n> two"),
        ("- a\n  - b\n    - c\n- d", "• a\n    ◦ b\n        ▪ c\n• d"),
        ("7. a\n8. b", "7. a\n8. b"),
        ("```sql\nselect 1 < 2;\n```", "```\nselect 1 &lt; 2;\n```"),
        ("```` ```{'a': 1}``` ````", "`\u02cb\u02cb\u02cb{'a': 1}\u02cb\u02cb\u02cb`"),
        ("a ` b", "a \u02cb b"),
        ("```\nnever closed", "```\nnever closed\n```"),
        ("a\n\n---\n\nb", "a\n\n────────────────\n\nb"),
    ],
)
def test_markdown_becomes_mrkdwn(markdown: str, expected: str) -> None:
    assert render_mrkdwn(markdown) == expected


def test_a_table_is_aligned_by_the_width_that_is_seen() -> None:
    table = "| name | 数量 |\n|---|---:|\n| **x** | 1 |\n| 中文😀 | 22 |"
    assert render_mrkdwn(table) == "```\nname   | 数量\n-------+-----\nx      |    1\n中文😀 |   22\n```"


def test_a_wide_table_is_written_as_one_paragraph_a_row() -> None:
    query = "select " + "x" * 150
    table = f"| query | calls | note |\n|---|---|---|\n| {query} | 3 | |\n| b | 4 | slow |"
    assert render_mrkdwn(table) == f"*{query}*\n    calls: 3\n*b*\n    calls: 4\n    note: slow"


def test_a_rendering_that_would_be_cut_is_shown_as_its_source() -> None:
    text = "[r] " * 500 + "\n\n[r]: https://ex.test/" + "a" * 900
    rendered = render_mrkdwn(text)
    assert len(rendered) < TEXT_CUT
    assert rendered.startswith("[r] [r] ")


MARKUP = st.lists(
    st.sampled_from(
        [
            *"ab <>!@#&;|*_~`[]()-+.:/\\\n1UC\"'=中😀",
            "<!channel>",
            "<@U1>",
            "<@U2>",
            "```",
            "| a | b |\n|--|--|\n",
            "https://",
        ]
    ),
    max_size=150,
).map("".join)


@settings(max_examples=400, deadline=None)
@given(MARKUP)
def test_whatever_is_said_only_listed_people_are_pinged(text: str) -> None:
    assert set(live(render_mrkdwn(text, {"U1"}))) <= {"@U1"}
    assert live(render_mrkdwn(text)) == []


@settings(max_examples=300, deadline=None)
@given(MARKUP)
def test_fences_are_balanced_whatever_is_said(text: str) -> None:
    assert len(re.findall(r"```", render_mrkdwn(text))) % 2 == 0


@given(st.text())
def test_escaping_happens_once_and_is_read_back_exactly(text: str) -> None:
    escaped = escape(text)
    assert "<" not in escaped
    assert ">" not in escaped
    assert escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text


@settings(max_examples=150, deadline=None)
@given(MARKUP)
def test_running_text_is_not_escaped_twice(text: str) -> None:
    rendered = render_mrkdwn(text.replace("&", " "))
    assert not re.search(r"&amp;(?:amp|lt|gt);", rendered)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="&<a|-*\n` ", min_size=3000, max_size=9000))
def test_every_part_that_fits_the_limit_arrives_whole(text: str) -> None:
    for part in fit_markdown(text, Limits(text_max=3500)):
        assert len(render_mrkdwn(part)) < TEXT_CUT
