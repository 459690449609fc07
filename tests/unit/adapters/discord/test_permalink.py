"""Links of messages and threads name the thread that is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import ThreadRef
from adapters.discord.permalink import parse_permalink

PLACE = ThreadRef(platform="discord", workspace="70", channel="80", thread="command-1")
INSIDE = ThreadRef(platform="discord", workspace="70", channel="80", thread="90")
DIRECT = ThreadRef(platform="discord", workspace="@me", channel="60", thread="60")
BASE = "https://discord.com/channels"


@pytest.mark.parametrize(
    ("link", "place", "key"),
    [
        (f"{BASE}/70/80/91", PLACE, "discord:70/80/91"),
        (f"<{BASE}/70/80/91>", PLACE, "discord:70/80/91"),
        (f"  {BASE}/70/80/91 ", INSIDE, "discord:70/80/91"),
        ("https://ptb.discord.com/channels/70/80/91", PLACE, "discord:70/80/91"),
        ("https://canary.discord.com/channels/70/80/91", PLACE, "discord:70/80/91"),
        ("https://discordapp.com/channels/70/80/91", PLACE, "discord:70/80/91"),
        (f"{BASE}/70/90", PLACE, "discord:70/80/90"),
        (f"{BASE}/70/90/95", PLACE, "discord:70/80/90"),
        (f"{BASE}/70/90/95", INSIDE, "discord:70/80/90"),
        (f"{BASE}/71/80/91", PLACE, "discord:71/80/91"),
        (f"{BASE}/@me/60/95", DIRECT, "discord:@me/60/60"),
        (f"{BASE}/@me/60", DIRECT, "discord:@me/60/60"),
    ],
)
def test_a_link_names_its_thread(link: str, place: ThreadRef, key: str) -> None:
    found = parse_permalink(link, place)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "link",
    [
        f"{BASE}/70/80",
        f"{BASE}/71/80",
        f"{BASE}/70",
        f"{BASE}/70/80/91x",
        f"{BASE}/seventy/80/91",
        "https://discord.com.example.com/channels/70/80/91",
        "https://example.com/channels/70/80/91",
        "https://evil.discord.com/channels/70/80/91",
        "",
        "91",
    ],
)
def test_anything_else_is_no_link_of_a_thread(link: str) -> None:
    assert parse_permalink(link, PLACE) is None


@given(st.text(max_size=80), st.text(st.sampled_from("/0123456789@me<>."), max_size=40))
def test_any_text_is_read_or_is_no_link(text: str, path: str) -> None:
    for link in (text, f"{BASE}/{path}"):
        found = parse_permalink(link, PLACE)
        assert found is None or found.platform == "discord"
