from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Message
from adapters.discord.parse import (
    Channel,
    Identity,
    is_edited,
    is_for_us,
    is_readable,
    mentions_us,
    parse_channel,
    parse_deleted,
    parse_identity,
    parse_message,
    parse_removed,
    parse_thread,
)

BOT, APP, ROLE = "900", "901", "902"
US = Identity(user=BOT, application=APP, name="Hermod", reads_all=True)
GUILD, ROOM, THREAD = "10", "20", "30"
TOP = Channel(id=ROOM, guild=GUILD, name="ops")
INSIDE = Channel(id=THREAD, guild=GUILD, parent=ROOM, name="slow", owner=BOT)
DIRECT = Channel(id="40")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Directory:
    def name_channel(self, guild: str, channel: str) -> str:
        return "ops" if (guild, channel) == (GUILD, ROOM) else ""

    def name_role(self, guild: str, role: str) -> str:
        return "dba" if (guild, role) == (GUILD, "77") else ""


def user(number: str, name: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "username": name.lower(), "global_name": name, **more}


ALICE, HERMOD, OTHER_BOT = user("1", "Alice"), user(BOT, "Hermod", bot=True), user("5", "Alerts", bot=True)


def snowflake(at: datetime) -> str:
    return str((int(at.timestamp() * 1000) - 1_420_070_400_000) << 22)


def said(content: str = "", **more: Any) -> dict[str, Any]:
    people = [HERMOD] if f"<@{BOT}>" in content or f"<@!{BOT}>" in content else []
    return {
        "id": "555",
        "type": 0,
        "channel_id": ROOM,
        "guild_id": GUILD,
        "author": ALICE,
        "content": content,
        "mentions": people,
        "mention_roles": [],
        "timestamp": "2026-11-30T12:00:00.123000+00:00",
        "edited_timestamp": None,
        **more,
    }


def read(wire: dict[str, Any], channel: Channel = TOP, role: str = ROLE) -> Message:
    message = parse_message(wire, channel, US, Directory(), role)
    assert message is not None
    return message


# -- addresses
def test_a_mention_in_a_channel_is_addressed_by_the_thread_that_will_be_opened_on_it() -> None:
    assert read(said(f"<@{BOT}> hi")).thread.key == f"discord:{GUILD}/{ROOM}/555"


def test_what_is_said_in_a_thread_belongs_to_it_and_to_the_channel_above() -> None:
    assert read(said("hi", channel_id=THREAD), INSIDE).thread.key == f"discord:{GUILD}/{ROOM}/{THREAD}"


def test_a_direct_message_has_its_conversation_as_thread() -> None:
    message = read(said("hi", channel_id="40"), DIRECT)
    assert message.thread.key == "discord:@me/40/40"
    assert message.direct


@pytest.mark.parametrize(("kind", "parent"), [(0, ""), (2, ""), (5, ""), (10, "20"), (11, "20"), (12, "20"), (15, "")])
def test_only_threads_have_a_parent_though_channels_have_categories(kind: int, parent: str) -> None:
    channel = parse_channel({"id": "30", "type": kind, "guild_id": GUILD, "parent_id": "20", "name": "x"})
    assert channel is not None
    assert channel.parent == parent


def test_a_direct_conversation_belongs_to_no_guild() -> None:
    channel = parse_channel({"id": "40", "type": 1}, GUILD)
    assert channel is not None
    assert channel.guild == ""


# -- whom it addresses
@pytest.mark.parametrize("mark", [f"<@{BOT}>", f"<@!{BOT}>"])
def test_both_ways_of_writing_our_mention_count_and_are_left_out(mark: str) -> None:
    wire = said(f"hey {mark}, what is slow?")
    assert mentions_us(wire, US, "")
    assert read(wire).text == "hey what is slow?"


def test_the_role_that_discord_made_for_us_counts_as_our_mention() -> None:
    wire = said(f"<@&{ROLE}> what is slow?", mention_roles=[ROLE])
    assert mentions_us(wire, US, ROLE)
    assert read(wire).text == "what is slow?"
    assert not mentions_us(said("<@&77> look", mention_roles=["77"]), US, ROLE)


def test_b055_an_announcement_to_everyone_is_no_mention_of_the_bot() -> None:
    wire = said("@everyone @here deploy at noon", mention_everyone=True)
    assert not mentions_us(wire, US, ROLE)
    assert not read(wire).mentioned


def test_a_mention_in_code_is_none() -> None:
    assert not mentions_us(said(f"`<@{BOT}>`", mentions=[]), US, ROLE)


def test_a_reply_that_pings_us_counts_and_one_that_does_not_ping_does_not() -> None:
    ours = {"id": "500", "author": HERMOD, "content": "It is the orders query."}
    assert mentions_us(said("and now?", type=19, referenced_message=ours, mentions=[HERMOD]), US, ROLE)
    assert not mentions_us(said("and now?", type=19, referenced_message=ours), US, ROLE)


# -- who may speak
def test_b015_own_words_are_never_taken_and_those_of_bots_only_when_they_are_listed() -> None:
    mention = f"<@{BOT}> disk is full"
    assert is_for_us(said(mention), US, ROLE, ())
    assert not is_for_us(said(mention, author=HERMOD), US, ROLE, {BOT})
    assert not is_for_us(said(mention, author=OTHER_BOT), US, ROLE, ())
    assert is_for_us(said(mention, author=OTHER_BOT), US, ROLE, {"5"})


def test_b014_a_listed_bot_that_only_acknowledges_is_not_heard() -> None:
    ours = {"id": "500", "author": HERMOD, "content": "Done."}
    assert not is_for_us(said("Ack.", author=OTHER_BOT), US, ROLE, {"5"})
    assert not is_for_us(
        said("Ack.", author=OTHER_BOT, type=19, referenced_message=ours, mentions=[HERMOD]), US, ROLE, {"5"}
    )


def test_webhooks_and_the_system_are_not_heard() -> None:
    mention = f"<@{BOT}> hi"
    assert not is_for_us(said(mention, webhook_id="5", author=user("5", "Grafana")), US, ROLE, ())
    assert not is_for_us(said(mention, author=ALICE | {"system": True}), US, ROLE, ())
    assert not is_for_us(said(mention, application_id=APP, webhook_id=APP), US, ROLE, {"1"})
    for kind in (1, 6, 7, 8, 18, 20, 21, 23, 46):
        assert not is_for_us(said(mention, type=kind), US, ROLE, ())


# -- what was said
def test_mentions_become_names_and_channels_keep_their_ids() -> None:
    bob = user("2", "Bob", member={"nick": "Bobby"})
    wire = said(
        f"<@{BOT}> ask <@2> or <@3> in <#{ROOM}> and <#21>, <@&77> <@&78> <:parrot:123> <a:dance:124> "
        "at <t:1700000000:R> with </slowq:9> see <https://ex.com/a_b?x=1&y=2>",
        mentions=[HERMOD, bob],
    )
    assert read(wire).text == (
        "ask @Bobby or @3 in #ops (20) and #21, @dba @78 :parrot: :dance: "
        "at 2023-11-14 22:13:20 UTC with /slowq see https://ex.com/a_b?x=1&y=2"
    )


def test_the_author_is_called_as_people_see_him_without_what_reorders_text() -> None:
    assert read(said("x", member={"nick": "The\u202eBoss"})).author.name == "TheBoss"
    assert read(said("x")).author.name == "Alice"
    assert read(said("x", author={"id": "1", "username": "al"})).author.name == "al"
    assert read(said("x", author={"id": "1"})).author.name == "1"


def test_attachments_are_addressed_so_that_they_can_be_found_again() -> None:
    file = {
        "id": "88",
        "filename": "log\u202etxt.exe",
        "size": 12,
        "content_type": "text/plain",
        "url": "https://cdn/x",
    }
    (ref,) = read(said("see", attachments=[file])).files
    assert (ref.address, ref.name, ref.size, ref.media_type) == ("20/555/88", "logtxt.exe", 12, "text/plain")


def test_stickers_and_polls_can_be_read() -> None:
    poll = {
        "question": {"text": "Roll back?"},
        "answers": [{"poll_media": {"text": "yes"}}, {"poll_media": {"text": "no"}}],
    }
    wire = said("", sticker_items=[{"id": "7", "name": "Wave", "format_type": 1}], poll=poll)
    assert read(wire).text == "[sticker: Wave]\n[poll] Roll back?\n- yes\n- no"
    assert is_readable(wire)


def test_what_others_wrote_comes_along_as_quoted() -> None:
    forwarded = {"content": "deadlock in <#20>", "embeds": [], "attachments": [{"id": "99", "filename": "a.log"}]}
    wire = said(
        f"<@{BOT}> what is this?",
        referenced_message={"id": "500", "author": user("2", "Bob"), "content": "it hangs"},
        message_snapshots=[{"message": forwarded}],
        embeds=[{"title": "Runbook", "description": "Restart it", "fields": [{"name": "Owner", "value": "dba"}]}],
    )
    message = read(wire)
    assert message.text == "what is this?"
    assert message.quoted == (
        "Forwarded: deadlock in #ops (20)\n\nIn reply to Bob: it hangs\n\nRunbook\nRestart it\nOwner: dba"
    )
    assert [file.address for file in message.files] == ["20/555/99"]


def test_our_own_words_are_quoted_in_a_channel_and_not_again_in_their_thread() -> None:
    ours = {"id": "500", "author": HERMOD, "content": "It is the orders query."}
    wire = said("why?", type=19, mentions=[HERMOD], referenced_message=ours)
    assert read(wire).quoted == "In reply to Hermod: It is the orders query."
    assert read(wire, INSIDE).quoted == ""


def test_what_a_listed_bot_says_in_its_embeds_is_what_it_says() -> None:
    card = {"title": "FIRING", "description": "disk 95 %"}
    block = {"type": 17, "components": [{"type": 10, "content": "host db1"}]}
    message = read(said(f"<@{BOT}>", author=OTHER_BOT, embeds=[card], components=[block]))
    assert message.text == "FIRING\ndisk 95 %\nhost db1"
    assert message.quoted == ""
    assert message.author.bot


def test_a_quote_is_bounded() -> None:
    assert len(read(said("x", embeds=[{"description": "y" * 9_000}])).quoted) == 8_000


def test_a_message_without_anything_in_it_cannot_be_read() -> None:
    assert not is_readable(said(""))
    assert is_readable(said("", attachments=[{"id": "88"}]))
    assert is_readable(said("x"))


def test_the_time_is_utc_and_comes_from_the_id_where_it_is_missing() -> None:
    assert read(said("x")).sent_at == datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC)
    at = datetime(2026, 11, 30, 11, 59, tzinfo=UTC)
    assert read(said("x", id=snowflake(at), timestamp="?")).sent_at == at


# -- edits, deletions, removal
def test_b009_only_an_edit_by_the_author_counts_and_only_while_it_may_be_remembered() -> None:
    fresh = snowflake(NOW - timedelta(hours=1))
    assert is_edited(said("x", id=fresh, edited_timestamp="2026-11-30T12:00:00+00:00"), NOW)
    assert not is_edited(said("x", id=fresh), NOW)  # a preview was added
    partial = {"id": fresh, "channel_id": ROOM, "embeds": [], "edited_timestamp": "2026-11-30T12:00:00+00:00"}
    assert not is_edited(partial, NOW)
    old = snowflake(NOW - timedelta(hours=21))
    assert not is_edited(said("x", id=old, edited_timestamp="2026-11-30T12:00:00+00:00"), NOW)


def test_a_deletion_names_the_message_wherever_it_stood() -> None:
    (one,) = parse_deleted({"id": "555", "channel_id": ROOM}, TOP, NOW)
    assert (one.thread.thread, one.message_id, one.sent_at) == ("555", "555", NOW)
    many = parse_deleted({"ids": ["555", "556", "x"], "channel_id": THREAD}, INSIDE, NOW)
    assert [(d.thread.thread, d.message_id) for d in many] == [(THREAD, "555"), (THREAD, "556")]


def test_an_outage_of_a_guild_is_not_its_removal() -> None:
    assert parse_removed({"id": GUILD, "unavailable": True}) is None
    removed = parse_removed({"id": GUILD})
    assert removed is not None
    assert removed.workspace == GUILD


def test_who_we_are_tells_whether_all_messages_can_be_read() -> None:
    for flags, reads_all in ((0, False), (1 << 18, True), (1 << 19, True), (1 << 15, False)):
        identity = parse_identity(HERMOD, {"id": APP, "flags": flags})
        assert identity is not None
        assert identity.reads_all is reads_all
    assert parse_identity({}, {"id": APP}) is None


# -- odd shapes
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted(
    {*said(), "embeds", "attachments", "poll", "components", "sticker_items", "message_snapshots", "referenced_message"}
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_b010_a_message_of_any_shape_is_read_or_left_alone(odd: dict[str, Any]) -> None:
    wire = said(f"<@{BOT}> x") | odd
    for channel in (TOP, INSIDE, DIRECT):
        is_for_us(wire, US, ROLE, {"5"})
        is_edited(wire, NOW)
        is_readable(wire)
        parse_deleted(wire, channel, NOW)
        parse_removed(wire)
        parse_channel(wire)
        message = parse_message(wire, channel, US, Directory(), ROLE)
        assert message is None or message.thread.platform == "discord"


@given(st.text(max_size=80))
def test_reading_markup_leaves_no_mark_of_ours(text: str) -> None:
    message = read(said(f"{text}<@{BOT}>{text}"))
    assert f"<@{BOT}>" not in message.text


def test_an_address_needs_every_part() -> None:
    assert parse_thread(TOP, "") is None
    assert parse_thread(Channel(id="", guild=GUILD), "1") is None
