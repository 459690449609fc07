"""The Home tab and the suggestions in Slack, drawn for whoever opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.chat import Opened, ThreadRef
from adapters.slack.home import build_home_view
from adapters.surfaces import HomeLine, HomePage, HomeSection, Suggestion
from tests.integration.slack.conftest import Inbox, running
from tests.servers.slack import SlackServer
from tests.servers.slack.blocks import VIEW_BLOCKS, check_blocks

THREAD = ThreadRef(platform="slack", workspace="T0FAKE", channel="C1OPS", thread="1700000000.000100")
DIRECT = ThreadRef(platform="slack", workspace="T0FAKE", channel="D1ALICE", thread="1700000001.000200")
PAGE = HomePage(
    title="Hermod",
    sections=(
        HomeSection(title="State", lines=(HomeLine(text="Slack: connected"), HomeLine(text="Model `main`: answers"))),
        HomeSection(
            title="Your last <threads>",
            lines=(HomeLine(text="2 messages & <!channel>", thread=THREAD), HomeLine(text="1 run", thread=DIRECT)),
        ),
    ),
)


class Fixed:
    """Gives the same page and suggestions to everybody, and remembers who asked."""

    def __init__(self, page: HomePage = PAGE, suggestions: tuple[Suggestion, ...] = ()) -> None:
        self.page, self.suggestions = page, suggestions
        self.asked: list[Opened] = []

    async def build_home(self, opened: Opened) -> HomePage:
        self.asked.append(opened)
        return self.page

    async def suggest(self, opened: Opened) -> tuple[Suggestion, ...]:
        self.asked.append(opened)
        return self.suggestions


def texts(view: dict[str, Any]) -> list[str]:
    return [block["text"]["text"] for block in view["blocks"]]


@pytest.fixture
async def surfaces(server: SlackServer, inbox: Inbox, mode: str) -> AsyncIterator[Fixed]:
    async with running(server, inbox, mode=mode) as adapter:
        fixed = Fixed(suggestions=tuple(Suggestion(title=f"q{n}", message=f"question {n}") for n in range(5)))
        adapter.show_surfaces(fixed)
        yield fixed


@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_the_home_tab_shows_the_page_with_links_to_threads(server: SlackServer, surfaces: Fixed) -> None:
    await server.open_home()
    await server.wait_until(lambda: server.calls_to("views.publish"))
    assert texts(server.home_view("U1ALICE")) == [
        "Hermod",
        "*State*\nSlack: connected\nModel `main`: answers",
        "*Your last &lt;threads&gt;*\n"
        f"• <{server.origin}/archives/C1OPS/p1700000000000100|2 messages &amp; &lt;!channel&gt;> in <#C1OPS>\n"
        f"• <{server.origin}/archives/D1ALICE/p1700000001000200|1 run> in your messages with me",
    ]
    assert [(o.author.id, o.tab, o.channel) for o in surfaces.asked] == [("U1ALICE", "home", "D1ALICE")]
    assert all(block["text"].get("verbatim", True) for block in server.home_view("U1ALICE")["blocks"])
    assert all("verbatim" in block["text"] for block in server.home_view("U1ALICE")["blocks"][1:])
    assert server.violations == []


async def test_opening_it_again_publishes_what_is_true_then_and_asks_for_the_address_once(
    server: SlackServer, surfaces: Fixed
) -> None:
    await server.open_home()
    await server.wait_until(lambda: len(server.calls_to("views.publish")) == 1)
    known = len(server.calls_to("auth.test"))
    surfaces.page = HomePage(title="Hermod", sections=(HomeSection(title="Jobs", lines=(HomeLine(text="none"),)),))
    await server.open_home()
    await server.wait_until(lambda: len(server.calls_to("views.publish")) == 2)
    assert texts(server.home_view("U1ALICE")) == ["Hermod", "*Jobs*\nnone"]
    assert len(server.calls_to("auth.test")) == known


async def test_the_messages_tab_offers_at_most_four_questions(server: SlackServer, surfaces: Fixed) -> None:
    await server.open_home(tab="messages")
    await server.wait_until(lambda: server.prompts)
    (prompts,) = server.prompts
    assert prompts["channel_id"] == "D1ALICE"
    assert prompts["prompts"] == [{"title": f"q{n}", "message": f"question {n}"} for n in range(4)]
    assert "thread_ts" not in prompts, "for an agent Slack would drop such a call silently"
    assert not server.calls_to("views.publish")


async def test_without_suggestions_nothing_is_called(server: SlackServer, surfaces: Fixed) -> None:
    surfaces.suggestions = ()
    await server.open_home(tab="messages")
    await server.wait_until(lambda: surfaces.asked)
    await server.open_home()
    await server.wait_until(lambda: server.calls_to("views.publish"))
    assert server.prompts == []


@pytest.mark.parametrize("fault", [{"error": "internal_error"}, {"http": 429}, {"drop": True}])
async def test_a_page_that_slack_does_not_take_is_acknowledged_all_the_same(
    server: SlackServer, surfaces: Fixed, fault: dict[str, Any]
) -> None:
    server.inject("views.publish", **fault)
    await server.open_home()
    await server.wait_until(lambda: server.deliveries and all(d.acked for d in server.deliveries))
    await server.mention("still here?", copies={"message": 0})
    await server.wait_until(lambda: all(d.acked for d in server.deliveries))


def test_a_page_of_any_size_fits_what_slack_takes() -> None:
    lines = tuple(HomeLine(text="x" * 200, thread=THREAD) for _ in range(300))
    page = HomePage(title="T" * 200, sections=tuple(HomeSection(title=f"S{n}", lines=lines) for n in range(20)))
    view = build_home_view(page, "https://fake.slack.com/")
    check_blocks(view["blocks"], most=VIEW_BLOCKS)
    assert texts(view)[0] == "T" * 150


def test_a_line_without_a_known_address_is_no_link() -> None:
    assert "• 2 messages &amp; &lt;!channel&gt; in <#C1OPS>" in texts(build_home_view(PAGE, ""))[2]
