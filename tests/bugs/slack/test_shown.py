"""What others showed wrongly or not at all, asked of the whole of Hermod over Slack's own client."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.bugs.slack.office import Office, elements, links, shown


async def answer(office: Office, text: str, question: str = "show me") -> str:
    """Let the model say ``text``; returns the thread in which it was said.

    Slack's own streams are refused: in them Slack renders the Markdown, and here it is our rendering that is looked at.
    """
    office.slack.inject("chat.startStream", error="method_deprecated", times=10**6)
    office.model.on().text(text)
    return await office.ask(question)


def lines_of_code(office: Office, root: str) -> list[str]:
    """The lines of all code blocks of a thread, in order, of blocks or of text."""
    found: list[str] = []
    for message in office.answers(root):
        if message.get("blocks"):
            blocks = elements(message, "rich_text_preformatted")
            found += ["".join(span["text"] for span in block["elements"]) for block in blocks]
        else:
            found += re.findall(r"```\w*\n(.*?)\n```", shown(message), re.S)
    return [line for code in found for line in code.split("\n")]


async def test_b037_a_code_block_over_several_messages_is_a_code_block_in_each(office: Office) -> None:
    lines = [f"x{n:03} = compute({n}, 'some words to fill the line') # {n}" for n in range(300)]
    root = await answer(office, "before\n\n```py\n" + "\n".join(lines) + "\n```\n\nafter")
    assert len(office.answers(root)) >= 2
    assert [line for line in lines_of_code(office, root) if line] == lines
    assert all(shown(m).count("```") % 2 == 0 for m in office.answers(root))
    assert all(c.args["text"].count("```") % 2 == 0 for c in office.slack.calls_to("chat.postMessage"))
    assert office.refusals == []


async def test_b038_a_text_without_any_place_to_cut_arrives_whole(office: Office) -> None:
    root = await answer(office, "z" * 30_001)
    assert office.said(root).replace("\n", "").count("z") == 30_001
    assert office.refusals == []


async def test_b038_b042_a_message_whose_blocks_slack_refuses_is_posted_in_a_plainer_form(office: Office) -> None:
    office.slack.inject("chat.postMessage", error="invalid_blocks")
    root = await answer(office, "## Result\n\n- one\n- **two**")
    (message,) = office.answers(root)
    assert elements(message, "rich_text") == []
    assert all(word in shown(message) for word in ("Result", "one", "two"))
    assert "chat.postMessage: invalid_blocks" in office.refusals


async def test_b039_b040_links_and_words_are_whole_in_one_message_each(office: Office) -> None:
    url = "https://ex.com/" + "path/" * 20 + "?a=1&b=2"
    words = " ".join(f"word{n:05}" for n in range(1190))  # the link lies across the end of the first message
    root = await answer(office, f"{words} [the runbook]({url}) {words}")
    assert len(office.answers(root)) >= 2
    assert [link for message in office.answers(root) for link in links(message)] == [(url, "the runbook")]
    assert re.findall(r"word\d+", office.said(root)) == re.findall(r"word\d+", words) * 2
    assert office.refusals == []


@pytest.mark.parametrize("text", ["@everyone " * 1600, "\n" * 2000 + "x", "<!channel> & " * 1200])
async def test_b040_escaping_never_makes_a_message_too_long_or_empty(office: Office, text: str) -> None:
    root = await answer(office, text)
    messages = office.answers(root)
    assert all(shown(m).strip() and m["text"].strip() for m in messages)
    assert "".join(office.said(root).split()) == "".join(text.split())
    assert office.slack.pinged() == set()
    assert office.refusals == []


async def test_b042_long_sections_and_many_blocks_stay_within_what_a_message_takes(office: Office) -> None:
    parts = [f"## Part {n}\n\n" + f"sentence {n} goes on. " * 150 for n in range(8)]
    root = await answer(office, "\n\n".join(parts))
    said = " ".join(office.said(root).split())  # a message may end in the middle of a sentence, by how it was written
    assert [said.count(f"sentence {n} goes on.") for n in range(8)] == [150] * 8
    assert office.refusals == []


async def test_b043_a_table_that_slack_would_refuse_is_shown_another_way(office: Office) -> None:
    rows = [f"| {n} | row{n:03} |  |" for n in range(150)]
    rows[7] = f"| 7 | {'long ' * 800} | NULL |"
    root = await answer(office, "| id | name | note |\n|--|--|--|\n" + "\n".join(rows))
    said = office.said(root)
    assert all(f"row{n:03}" in said for n in range(150) if n != 7)
    assert said.count("long") >= 800
    assert office.refusals == []


async def test_b043_empty_cells_and_a_small_table_become_slacks_own_table(office: Office) -> None:
    root = await answer(office, "| a | b |\n|--|--:|\n| x |  |\n|  | 1 |")
    (table,) = [block for message in office.answers(root) for block in message["blocks"] if block["type"] == "table"]
    assert [len(row) for row in table["rows"]] == [2, 2, 2]
    assert office.refusals == []


@pytest.mark.parametrize("text", ["**Status:**OK", "です**強調**です", "**note:**see **this**now"])
async def test_b044_bold_beside_letters_is_bold_and_shows_no_asterisks(office: Office, text: str) -> None:
    root = await answer(office, text)
    (message,) = office.answers(root)
    assert "*" not in shown(message)
    assert "".join(shown(message).split("\u200b")) == text.replace("**", "")
    bold = [span["text"] for span in elements(message, "text") if span.get("style", {}).get("bold")]
    assert bold == re.findall(r"\*\*(.+?)\*\*", text)
    assert re.search(r"\*\*", message["text"]) is None


async def test_b045_a_fence_on_one_line_is_code_and_nothing_else(office: Office) -> None:
    root = await answer(office, "result: ```{'a': 1}``` done")
    (message,) = office.answers(root)
    code = [span["text"] for span in elements(message, "text") if span.get("style", {}).get("code")]
    assert [text.strip() for text in code + lines_of_code(office, root)] == ["{'a': 1}"]
    assert "`" not in shown(message)


async def test_b046_a_bare_address_is_shown_once(office: Office) -> None:
    url = "https://ex.com/a_b?x=1&y=2"
    root = await answer(office, f"see {url} and <{url}> and [{url}]({url})")
    (message,) = office.answers(root)
    assert links(message) == [(url, url)] * 3
    assert shown(message).count(url) == 3
    assert "](" not in message["text"]


async def test_b048_marks_inside_table_cells_are_rendered(office: Office) -> None:
    root = await answer(office, "| **x** | `y` |\n|--|--|\n| **bold** | _soft_ ~~gone~~ |")
    (message,) = office.answers(root)
    assert not set("*`~_") & set(shown(message))
    spans: dict[str, Any] = {span["text"].strip(): span.get("style", {}) for span in elements(message, "text")}
    assert spans["bold"] == {"bold": True}
    assert spans["soft"] == {"italic": True}


async def test_b051_mentions_in_any_construct_ping_nobody_and_are_shown(office: Office) -> None:
    live = "<!channel> <!here|x> <!subteam^S1> <@U2BOB> @everyone"
    constructs = [
        live,
        f"**{live}**",
        f"`{live}`",
        f"```\n{live}\n```",
        f"> {live}",
        f"- {live}\n  1. {live}",
        f"# {live}",
        f"| {live.replace('|', '/')} |\n|--|\n| {live.replace('|', '/')} |",
        f"[{live}](https://ex.com)",
        "[x](!channel) [y](<!here>) [z](@U2BOB)",
        f'[t](https://ex.com "{live}")',
        "&lt;!channel&gt;",
    ]
    for n, text in enumerate(constructs):
        office.slack.add_channel(channel := f"C{n}TRY", f"try-{n}")  # each has its own pace
        office.model.on(user=f"try {n}.").text(text)
        root = await office.ask(f"try {n}.", channel=channel)
        assert "channel" in office.said(root, channel) or n == 10, text
    assert office.slack.pinged() == set()
    assert office.refusals == []


async def test_b051_a_long_table_in_a_file_pings_nobody_by_its_caption(office: Office) -> None:
    rows = "\n".join(f"| <!channel> {n} | <@U2BOB> |" for n in range(400))
    await answer(office, f"| <!here> | b |\n|--|--|\n{rows}\n\n<!everyone>")
    assert office.slack.pinged() == set()
    assert office.refusals == []


async def test_b052_raw_link_marks_in_a_text_make_no_link(office: Office) -> None:
    office.model.on(step=0).tools(("current_time", {}))
    office.model.on(step=1).text("it says <https://evil.example|Deploy succeeded> now")
    root = await office.ask("what does it say?")
    (message,) = office.answers(root)
    assert "<https://evil.example|" not in message["text"]
    assert all(words != "Deploy succeeded" for _, words in links(message))
    assert "evil.example" in shown(message)  # what the words stand for can be seen


async def test_b053_text_is_escaped_once_and_addresses_keep_their_query(office: Office) -> None:
    root = await answer(office, "[q](https://ex.com/?a=1&b=2) `a && b` literal &amp;lt;!here&amp;gt; AT&T <b>")
    (message,) = office.answers(root)
    assert links(message) == [("https://ex.com/?a=1&b=2", "q")]
    assert shown(message) == "q a && b literal &lt;!here&gt; AT&T <b>"
    assert "<https://ex.com/?a=1&amp;b=2|q>" in message["text"]
    assert "&amp;lt;!here&amp;gt; AT&amp;T &lt;b&gt;" in message["text"]


async def test_b054_people_who_are_not_in_the_messages_own_set_are_not_pinged(office: Office) -> None:
    root = await answer(office, "ask <@U2BOB> and <@U1ALICE|alice>, or <@W7EXEC>")
    assert office.slack.pinged() <= {"U1ALICE"}  # at most whoever asked
    assert "U2BOB" in office.said(root) or "bob" in office.said(root).lower()


async def test_b078_text_from_right_to_left_keeps_the_rest_of_its_line_in_order(office: Office) -> None:
    name = "שרת-ראשי"
    root = await answer(office, f"- {name} — 3 errors (12:00)\n- `{name}` stays")
    (message,) = office.answers(root)
    assert f"\u2068{name}\u2069 — 3 errors (12:00)" in shown(message)
    code = [span["text"] for span in elements(message, "text") if span.get("style", {}).get("code")]
    assert code == [name]  # not inside code


SPOOFED = "invoice\u202egpj.exe"
TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067")


async def test_b079_characters_that_turn_text_around_do_not_reach_people(office: Office) -> None:
    root = await answer(office, f"the file is called `{SPOOFED}`, or \u2066{SPOOFED}")
    assert not TURNING & set(office.said(root))
    assert "invoice" in office.said(root)


async def test_b079_the_name_of_an_attached_file_is_told_the_model_without_such_characters(office: Office) -> None:
    office.model.on().text("I see")
    await office.ask("look at this", files={f"{SPOOFED}.txt": b"x"})
    told = str(office.model.requests[-1].messages[-1]["content"])
    assert "invoice" in told
    assert not TURNING & set(told)
