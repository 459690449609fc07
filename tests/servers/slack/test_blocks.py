from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack.blocks import count_expanded
from tests.servers.slack.conftest import refusal
from tests.servers.slack.pings import find_pings


def text(words: str, kind: str = "mrkdwn") -> dict[str, Any]:
    return {"type": kind, "text": words}


def section(words: str) -> dict[str, Any]:
    return {"type": "section", "text": text(words)}


def button(label: str = "Yes", action_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "button", "text": text(label, "plain_text"), "action_id": action_id, **more}


def actions(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def table(rows: int, columns: int, cell: str = "x") -> dict[str, Any]:
    return {"type": "table", "rows": [[text(cell, "raw_text")] * columns for _ in range(rows)]}


def feedback(label: str = "Good", value: str = "up") -> dict[str, Any]:
    side = {"text": text(label, "plain_text"), "value": value}
    element = {"type": "feedback_buttons", "action_id": "f", "positive_button": side, "negative_button": side}
    return {"type": "context_actions", "elements": [element]}


def markdown(words: str) -> dict[str, Any]:
    return {"type": "markdown", "text": words}


GOOD: list[list[dict[str, Any]]] = [
    [section("x" * 3000)] * 50,
    [{"type": "section", "fields": [text("x" * 2000)] * 10}],
    [{"type": "header", "text": text("x" * 150, "plain_text")}],
    [actions(*(button(action_id=str(n)) for n in range(25)))],
    [actions(button("x" * 75, value="v" * 2000, style="danger"))],
    [table(100, 20, "x"), table(100, 20, "x")],
    [table(10, 10, "x" * 100)],
    [feedback("x" * 75, "v" * 2000)],
    [markdown("x" * 12_000)],
    [markdown("x" * 6000), markdown("x" * 6000)],
    [markdown("# a\n\nb\n\n" * 25)],
    [{"type": "context", "elements": [text("x")] * 10}],
    [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "x"}]}]}],
]

BAD: list[tuple[list[dict[str, Any]], str]] = [
    ([section("x")] * 51, "invalid_blocks"),
    ([section("x" * 3001)], "invalid_blocks"),
    ([section("")], "invalid_blocks"),
    ([{"type": "section"}], "invalid_blocks"),
    ([{"type": "section", "fields": [text("x")] * 11}], "invalid_blocks"),
    ([{"type": "header", "text": text("x" * 151, "plain_text")}], "invalid_blocks"),
    ([{"type": "header", "text": text("x")}], "invalid_blocks"),
    ([actions()], "invalid_blocks"),
    ([actions(*(button(action_id=str(n)) for n in range(26)))], "invalid_blocks"),
    ([actions(button("x" * 76))], "invalid_blocks"),
    ([actions(button(value="v" * 2001))], "invalid_blocks"),
    ([actions(button(style="green"))], "invalid_blocks"),
    ([actions(button(), button())], "invalid_blocks"),
    ([actions(button(action_id="a" * 256))], "invalid_blocks"),
    ([table(101, 2)], "invalid_blocks"),
    ([table(2, 21)], "invalid_blocks"),
    ([table(2, 2, "")], "invalid_blocks"),
    ([table(10, 10, "x" * 101)], "invalid_blocks"),
    ([table(10, 10, "x" * 60), table(10, 10, "x" * 60)], "invalid_blocks"),
    ([feedback("x" * 76)], "invalid_blocks"),
    ([feedback(value="")], "invalid_blocks"),
    ([{"type": "context_actions", "elements": [button()]}], "invalid_blocks"),
    ([markdown("x" * 12_001)], "invalid_blocks"),
    ([markdown("x" * 7000), markdown("x" * 7000)], "msg_blocks_too_long"),
    ([markdown("# a\n\nb\n\n" * 26)], "invalid_blocks"),
    ([{"type": "context", "elements": [text("x")] * 11}], "invalid_blocks"),
    ([{"type": "rich_text", "elements": [{"type": "paragraph"}]}], "invalid_blocks"),
    ([{"type": "heading"}], "invalid_blocks"),
    ([{**section("x"), "block_id": "b"}, {**section("y"), "block_id": "b"}], "invalid_blocks"),
]


@pytest.mark.parametrize("blocks", GOOD)
async def test_blocks_at_the_limit_are_taken(client: AsyncWebClient, blocks: list[dict[str, Any]]) -> None:
    assert await refusal(client, "chat.postMessage", channel="C1OPS", text="x", blocks=blocks) == "ok"


@pytest.mark.parametrize(("blocks", "code"), BAD)
async def test_blocks_above_the_limit_are_refused(
    client: AsyncWebClient, blocks: list[dict[str, Any]], code: str
) -> None:
    assert await refusal(client, "chat.postMessage", channel="C1OPS", text="x", blocks=blocks) == code


@pytest.mark.parametrize(
    ("written", "blocks"),
    [("a\n\nb\n\nc", 1), ("# h\n\ntext\n\n- x\n  - y\n\n```\ncode\n```", 4), ("| a |\n|--|\n| b |\n\n> q\n\n---", 3)],
)
def test_a_markdown_block_counts_as_what_it_becomes(written: str, blocks: int) -> None:
    assert count_expanded(written) == blocks


@pytest.mark.parametrize(
    ("message", "pinged"),
    [
        (
            {"text": "<!channel> <!here|x> <!subteam^S1|@dba> <@U2> &lt;@U3&gt; @everyone"},
            {"channel", "here", "S1", "U2"},
        ),
        ({"text": "@everyone", "link_names": True}, {"everyone"}),
        ({"text": "x", "blocks": [section("<@U1>"), markdown("<@U2>"), table(1, 1, "<@U3>")]}, {"U1", "U2"}),
        ({"text": "x", "blocks": [{"type": "header", "text": text("<!here>", "plain_text")}]}, set()),
        (
            {
                "blocks": [
                    {
                        "type": "rich_text",
                        "elements": [
                            {
                                "type": "rich_text_section",
                                "elements": [{"type": "user", "user_id": "U7"}, {"type": "broadcast", "range": "here"}],
                            }
                        ],
                    }
                ]
            },
            {"U7", "here"},
        ),
        ({"attachments": [{"fallback": "<@U8>", "text": "x"}]}, {"U8"}),
    ],
)
def test_the_mention_ledger_finds_who_is_pinged(message: dict[str, Any], pinged: set[str]) -> None:
    assert find_pings(message) == pinged
