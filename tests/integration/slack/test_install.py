"""Many workspaces install Hermod: each is understood and answered as its own bot, and only while it wants to be."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from yarl import URL

from adapters.chat import AdapterNotConfigured, Delivered, FileRef, Rejected, Reply, RetryLater
from adapters.slack.install import COOKIE
from adapters.slack.installation import NewInstallation
from adapters.slack.manifest import BOT_SCOPES
from tests.integration.slack.conftest import wait_connected
from tests.integration.slack.install_desk import (
    KEY,
    OTHER_KEY,
    Office,
    TestClock,
    open_installations,
    open_office,
    thread_of,
)
from tests.servers.slack import SlackServer


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    """Three workspaces, in none of which the app is installed."""
    async with SlackServer(bot_token="xoxb-none-yet-0000", retry_delays=(0.0,)) as server:
        server.home.installed = False
        for team, channel in (("T2", "C2TWO"), ("T3", "C3THREE")):
            server.add_workspace(team, f"Team {team} <&>", installed=False)
            server.add_channel(channel, channel.lower(), team=team)
        yield server


@pytest.fixture(params=["socket", "http"])
async def office(request: pytest.FixtureRequest, server: SlackServer, tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(server, tmp_path, mode=request.param) as office:
        yield office


def read_database(folder: Path) -> bytes:
    """Everything that the database has on the disk, the write-ahead log included."""
    return b"".join(path.read_bytes() for path in folder.glob("hermod.db*"))


def tokens(server: SlackServer, method: str) -> list[str]:
    return [call.token for call in server.calls_to(method)]


# -- two workspaces --------------------------------------------------------------------------------


async def test_each_workspace_is_understood_and_answered_with_its_own_token(office: Office) -> None:
    server = office.server
    assert (await office.install())[0] == 200
    status, page = await office.install("T2")
    assert (status, "Team T2 &lt;&amp;&gt;" in page) == (200, True)
    assert (await office.install("T3"))[0] == 200
    for team, channel in (("T0FAKE", "C1OPS"), ("T2", "C2TWO"), ("T3", "C3THREE")):
        message = await office.ask("hello", channel)
        assert message.thread == thread_of(team, channel, message.id)
        assert (message.mentioned, message.text) == (True, "hello"), "our own name there is known, and removed"
        assert isinstance(await office.answer(message, f"{team}/1"), Delivered)
        assert [m["text"] for m in server.bot_messages(channel, message.id)] == ["to hello"]
    spaces = [server.workspaces[team].bot_token for team in ("T0FAKE", "T2", "T3")]
    assert tokens(server, "chat.postMessage") == spaces
    assert len(set(spaces)) == 3
    assert set(tokens(server, "users.info")) == set(spaces), "people are looked up in their own workspace"
    assert server.violations == []


async def test_what_slack_is_asked_for_is_what_the_app_uses(office: Office) -> None:
    await office.install("T2")
    kept = await office.installations.find("T2")
    assert kept is not None
    assert kept.scopes == frozenset(BOT_SCOPES)
    assert (kept.bot_user, kept.bot, kept.installer, kept.app) == ("U0BOT2", "B02", "U1ALICE", "A0FAKE")
    assert (kept.token, kept.revision, kept.installed_at) == (
        office.server.workspaces["T2"].bot_token,
        1,
        office.clock.at,
    )
    assert kept.token not in repr(kept)


async def test_b006_auth_test_is_asked_once_by_installing_and_never_on_the_way_to_an_acknowledgement(
    office: Office,
) -> None:
    server = office.server
    await office.install("T2")
    assert len(server.calls_to("auth.test")) == 1
    server.ack_timeout = 20.0
    server.inject("auth.test", delay=20.0, times=99)
    await asyncio.gather(*(office.ask(f"n{n}", "C2TWO", copies={"mention": 1, "message": 0}) for n in range(5)))
    await server.wait_until(lambda: all(d.acked for d in server.deliveries))
    assert max(d.acked_at - d.sent_at for d in server.deliveries if d.acked_at) < 3.0
    assert len(server.calls_to("auth.test")) == 1


async def test_after_a_restart_everything_is_known_from_the_database(server: SlackServer, tmp_path: Path) -> None:
    async with open_office(server, tmp_path) as office:
        await office.install("T2")
    server.inject("auth.test", error="fatal_error", times=99)
    async with open_office(server, tmp_path) as office:
        message = await office.ask("again", "C2TWO")
        assert isinstance(await office.answer(message), Delivered)
    assert tokens(server, "chat.postMessage") == [server.workspaces["T2"].bot_token]


async def test_status_signs_history_drafts_and_files_use_the_workspaces_own_token(office: Office) -> None:
    server = office.server
    await office.install()
    await office.install("T2")
    token = server.workspaces["T2"].bot_token
    message = await office.ask("look", "C2TWO", files={"a.txt": b"line\n"})
    thread, before = message.thread, len(server.calls)
    await office.adapter.set_status(thread, "is thinking")
    await office.adapter.react(thread, message.id, "seen")
    assert [said.id for said in await office.adapter.fetch_history(thread, limit=9)] == [message.id]
    draft = office.adapter.open_draft(thread, asker=message.author)
    assert draft is not None
    await draft.show("half an answer ")
    await server.wait_until(lambda: server.calls_to("chat.startStream"))
    assert isinstance(await draft.finish(Reply(thread=thread, text="half an answer, whole", key="k/1")), Delivered)
    assert await office.adapter.find_posted(thread, "k/1") is not None
    assert {call.token for call in server.calls[before:]} == {token}
    (file,) = message.files
    assert await office.adapter.fetch_file(file, max_bytes=100) == b"line\n"
    assert await office.adapter.fetch_file(FileRef(id="F", name="x", address="no-mark"), max_bytes=9) is None
    assert office.adapter.open_draft(thread_of("T9", "C9", "1.1"), asker=None) is None


async def test_commands_and_buttons_belong_to_their_workspace(office: Office) -> None:
    server = office.server
    await office.install("T2")
    message = await office.ask("a", "C2TWO")
    await server.slash("/hermod", "help", channel="C2TWO")
    await office.inbox.wait_for(lambda: office.inbox.commands)
    assert office.inbox.commands[0].thread.workspace == "T2"
    blocks = [
        {
            "type": "actions",
            "elements": [
                {"type": "button", "action_id": "ok", "value": "v", "text": {"type": "plain_text", "text": "ok"}}
            ],
        }
    ]
    ts = str(server._post("C2TWO", {"text": "x", "blocks": blocks}, message.id)["ts"])
    await server.click(ts, "ok", channel="C2TWO")
    await office.inbox.wait_for(lambda: office.inbox.actions)
    assert office.inbox.actions[0].thread == message.thread


async def test_an_installation_in_a_whole_organisation_counts_for_all_of_its_workspaces(
    server: SlackServer, tmp_path: Path
) -> None:
    space = server.home
    space.installed, space.enterprise_id = True, "E1"
    server.add_user("U1ALICE", "alice", enterprise_user={"enterprise_id": "E1"})
    async with open_office(server, tmp_path, start=False) as office:
        await office.installations.save(
            NewInstallation(
                workspace="E1",
                name="Org",
                enterprise="E1",
                org_wide=True,
                token=space.bot_token,
                bot_user=space.bot_user,
                bot=space.bot_id,
                scopes=frozenset(BOT_SCOPES),
                installed_at=office.clock.at,
            )
        )
        await office.adapter.start(office.inbox.accept)
        await wait_connected(office.adapter)
        event = {"type": "app_mention", "user": "U1ALICE", "text": "<@U0BOT> hi", "channel": "C1OPS", "ts": "1700.1"}
        grants = [{"enterprise_id": "E1", "team_id": None, "is_bot": True, "is_enterprise_install": True}]
        await server.emit(event, body={"authorizations": grants, "team_id": "T0FAKE", "enterprise_id": "E1"})
        await office.inbox.wait_for(lambda: office.inbox.messages)
        (message,) = office.inbox.messages
        assert (message.thread.workspace, message.text) == ("E1", "hi")
        assert not message.author.external


async def test_an_event_of_a_workspace_that_never_installed_it_is_acknowledged_and_ignored(office: Office) -> None:
    server = office.server
    server.workspaces["T2"].installed = True
    await server.mention("hello", channel="C2TWO")
    await server.wait_until(lambda: len(server.deliveries) == 2 and all(d.acked for d in server.deliveries))
    assert office.inbox.items == []
    outcome = await office.adapter.post(Reply(thread=thread_of("T2", "C2TWO", "1.1"), text="x", key="k"))
    assert isinstance(outcome, Rejected)
    assert f"install it at {office.url}/slack/install" in outcome.reason
    assert server.calls_to("chat.postMessage") == []


# -- the way of installing -------------------------------------------------------------------------


class Browser:
    """A person's browser that follows an installation step by step."""

    def __init__(self, office: Office, http: aiohttp.ClientSession) -> None:
        self.office, self.http = office, http

    async def begin(self, team: str = "T2") -> str:
        """Begin, agree, and return the address that Slack sends the browser back to."""
        async with self.http.get(f"{self.office.url}/slack/install", allow_redirects=False) as page:
            assert page.status == 302
            consent = page.headers["Location"]
        async with self.http.get(f"{consent}&team={team}", allow_redirects=False) as page:
            return page.headers["Location"]

    async def open(self, url: str, method: str = "GET", **more: str) -> tuple[int, str]:
        async with self.http.request(method, url, headers=more) as page:
            return page.status, await page.text()


@pytest.fixture
async def browser(office: Office) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as http:
        yield Browser(office, http)


async def test_a_state_holds_once(office: Office, browser: Browser) -> None:
    back = await browser.begin()
    cookie = browser.http.cookie_jar.filter_cookies(URL(f"{office.url}/slack/"))[COOKIE].value
    assert (await browser.open(back))[0] == 200
    fresh = parse_qs(urlsplit(await browser.begin("T3")).query)["code"][0]
    replayed = re.sub(r"code=\w+", f"code={fresh}", back)
    async with aiohttp.ClientSession() as http:
        status, page = await Browser(office, http).open(replayed, Cookie=f"{COOKIE}={cookie}")
    assert (status, "used before" in page) == (400, True)
    assert len(office.server.calls_to("oauth.v2.access")) == 1
    assert await office.installations.find("T3") is None


async def test_a_state_belongs_to_the_browser_that_began(office: Office, browser: Browser) -> None:
    back = await browser.begin()
    async with aiohttp.ClientSession() as http:
        victim = Browser(office, http)
        assert (await victim.open(back))[0] == 400
        await victim.begin()  # has a cookie of its own now
        assert (await victim.open(back))[0] == 400
        assert (await victim.open(back, Cookie=f"{COOKIE}="))[0] == 400
    assert office.server.calls_to("oauth.v2.access") == []
    assert (await browser.open(back))[0] == 200


async def test_a_state_ends_after_ten_minutes(office: Office, browser: Browser) -> None:
    back = await browser.begin()
    office.clock.at += timedelta(seconds=601)
    status, page = await browser.open(back)
    assert (status, "too old" in page, f'href="{office.url}/slack/install"' in page) == (400, True, True)
    assert office.server.calls_to("oauth.v2.access") == []


@pytest.mark.parametrize("change", ["99999999999", "x", "", "1.2", "%00", "é" * 400])
async def test_a_state_that_is_not_ours_reaches_nothing(office: Office, browser: Browser, change: str) -> None:
    back = await browser.begin()
    state = parse_qs(urlsplit(back).query)["state"][0]
    until, nonce, signature = state.split(".")
    for forged in (
        change,
        f"{change}.{nonce}.{signature}",
        f"{until}.{change}.{signature}",
        f"{until}.{nonce}.{change}",
    ):
        status, _ = await browser.open(f"{office.url}/slack/oauth_redirect?code=c&state={forged}")
        assert status == 400
    assert office.server.calls_to("oauth.v2.access") == []


async def test_looking_at_the_redirect_redeems_nothing(office: Office, browser: Browser) -> None:
    back = await browser.begin()
    assert (await browser.open(back, "HEAD"))[0] == 405
    assert (await browser.open(back))[0] == 200


async def test_pages_are_kept_nowhere_and_tell_nobody_where_they_came_from(office: Office, browser: Browser) -> None:
    async with browser.http.get(f"{office.url}/slack/install", allow_redirects=False) as page:
        cookie = page.headers["Set-Cookie"]
        assert page.headers["Cache-Control"] == "no-store"
        assert page.headers["Referrer-Policy"] == "no-referrer"
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Lax", "Path=/slack", "Max-Age=600"))


async def test_who_does_not_agree_changes_nothing(office: Office) -> None:
    status, page = await office.install("T2", deny=True)
    assert (status, "nothing was changed" in page) == (403, True)
    assert await office.installations.find("T2") is None


@pytest.mark.parametrize("error", ["invalid_code", "bad_client_secret", "internal_error"])
async def test_a_code_that_slack_does_not_take_installs_nothing(office: Office, error: str) -> None:
    office.server.inject("oauth.v2.access", error=error)
    status, page = await office.install("T2")
    assert (status, office.server.client_secret in page) == (502, False)
    assert await office.installations.find("T2") is None


async def test_a_token_that_slack_does_not_know_is_not_kept(office: Office) -> None:
    office.server.inject("auth.test", error="invalid_auth")
    assert (await office.install("T2"))[0] == 503
    assert await office.installations.find("T2") is None
    assert (await office.install("T2"))[0] == 200


async def test_a_workspace_that_is_not_allowed_is_turned_away_and_its_token_given_back(
    server: SlackServer, tmp_path: Path
) -> None:
    async with open_office(server, tmp_path, allowed=("T2",)) as office:
        assert (await office.install("T2"))[0] == 200
        status, page = await office.install("T3")
        assert (status, "allow the workspace T3" in page) == (403, True)
        assert await office.installations.find("T3") is None
    assert not server.workspaces["T3"].installed
    assert server.workspaces["T2"].installed


# -- removed and revoked ---------------------------------------------------------------------------


async def test_a_workspace_that_removed_the_app_falls_quiet_and_comes_back_by_installing(office: Office) -> None:
    server = office.server
    await office.install()
    await office.install("T2")
    message = await office.ask("hello", "C2TWO")
    await server.uninstall("T2")
    await server.wait_until(lambda: all(d.acked for d in server.deliveries))
    assert await office.installations.find("T2") is None
    before = len(server.calls)
    outcome = await office.answer(message)
    assert isinstance(outcome, Rejected)
    assert "install" in outcome.reason
    await office.adapter.set_status(message.thread, "is thinking")
    await office.adapter.react(message.thread, message.id, "seen")
    await office.adapter.discard_draft(message.thread, "1.1")
    assert await office.adapter.fetch_history(message.thread, limit=5) == ()
    assert office.adapter.open_draft(message.thread, asker=message.author) is None
    assert len(server.calls) == before, "nothing was asked of Slack"
    assert isinstance(await office.answer(await office.ask("still here", "C1OPS"), "k2"), Delivered)

    assert (await office.install("T2"))[0] == 200
    assert isinstance(await office.answer(message), Delivered)
    assert isinstance(await office.answer(await office.ask("back", "C2TWO"), "k3"), Delivered)
    assert tokens(server, "chat.postMessage")[-1] == server.workspaces["T2"].bot_token


@pytest.mark.parametrize("code", ["token_revoked", "account_inactive"])
async def test_an_answer_that_the_token_is_revoked_counts_like_the_event(office: Office, code: str) -> None:
    server = office.server
    await office.install("T2")
    message = await office.ask("hello", "C2TWO")
    server.inject("chat.postMessage", error=code)
    outcome = await office.answer(message)
    assert isinstance(outcome, Rejected)
    posts = len(server.calls_to("chat.postMessage"))
    assert isinstance(await office.answer(message), Rejected)
    assert len(server.calls_to("chat.postMessage")) == posts == 1
    assert await office.installations.find("T2") is None


async def test_an_address_that_slack_refuses_ends_no_installation(office: Office) -> None:
    server = office.server
    await office.install("T2")
    message = await office.ask("hello", "C2TWO")
    server.inject("chat.postMessage", error="invalid_auth")
    assert isinstance(await office.answer(message), Rejected)
    assert isinstance(await office.answer(message, "k2"), Delivered)


async def test_what_was_being_written_when_the_app_was_removed_makes_no_further_call(office: Office) -> None:
    server = office.server
    await office.install("T2")
    message = await office.ask("hello", "C2TWO")
    draft = office.adapter.open_draft(message.thread, asker=message.author)
    assert draft is not None
    await draft.show("half ")
    await server.wait_until(lambda: server.calls_to("chat.startStream"))
    await server.uninstall("T2")
    await server.wait_until(lambda: all(d.acked for d in server.deliveries))
    before = len(server.calls)
    await draft.show("half an answer, and more of it")
    outcome = await draft.finish(Reply(thread=message.thread, text="half an answer", key="k"))
    assert outcome is None or isinstance(outcome, Rejected)
    assert len(server.calls) == before


async def test_another_process_that_installs_anew_is_noticed_without_losing_a_post(
    server: SlackServer, tmp_path: Path
) -> None:
    async with open_office(server, tmp_path) as office, open_installations(tmp_path, office.clock) as other:
        await office.install("T2")
        message = await office.ask("hello", "C2TWO")
        kept = await other.find("T2")
        assert kept is not None
        token = server.rotate_token("T2")
        await other.save(
            NewInstallation(
                workspace="T2",
                name="Two",
                token=token,
                bot_user=kept.bot_user,
                bot=kept.bot,
                scopes=kept.scopes,
                installed_at=office.clock.at,
            )
        )
        answers = await asyncio.gather(*(office.answer(message, f"k{n}") for n in range(3)))
        assert all(isinstance(answer, Delivered) for answer in answers)
        assert len(server.bot_messages("C2TWO")) == 3


async def test_the_news_of_a_removal_that_come_after_installing_anew_are_ignored(office: Office) -> None:
    server = office.server
    await office.install("T2")
    event = {"type": "app_uninstalled"}
    past = int((office.clock.at - timedelta(seconds=90)).timestamp())
    await server.emit(event, channel="C2TWO", body={"event_time": past})
    await server.wait_until(lambda: server.deliveries and all(d.acked for d in server.deliveries))
    assert isinstance(await office.answer(await office.ask("hello", "C2TWO")), Delivered)
    later = int((office.clock.at + timedelta(seconds=90)).timestamp())
    await server.emit(event, channel="C2TWO", body={"event_time": later})
    await server.wait_until(lambda: all(d.acked for d in server.deliveries))
    assert await office.installations.find("T2") is None


async def test_a_persons_own_revoked_token_ends_nothing(office: Office) -> None:
    await office.install("T2")
    event = {"type": "tokens_revoked", "tokens": {"oauth": ["U1ALICE"], "bot": []}}
    await office.server.emit(event, channel="C2TWO")
    await office.server.wait_until(lambda: office.server.deliveries and office.server.deliveries[-1].acked)
    assert await office.installations.find("T2") is not None


# -- keys and secrets ------------------------------------------------------------------------------


async def test_no_token_is_in_the_database_or_in_a_log(
    server: SlackServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with open_office(server, tmp_path) as office:
        await office.install()
        await office.install("T2")
        await office.answer(await office.ask("hello", "C2TWO"))
        await server.uninstall("T2")
        await server.wait_until(lambda: all(d.acked for d in server.deliveries))
        dump = read_database(tmp_path)
    said = capfd.readouterr()
    for space in (server.home, server.workspaces["T2"]):
        assert space.bot_token.startswith("xoxb-")
        canaries = (space.bot_token, base64.b64encode(space.bot_token.encode()).decode(), space.bot_token[-12:])
        for canary in canaries:
            assert canary.encode() not in dump
            assert canary not in said.out + said.err
    assert server.client_secret.encode() not in dump


async def test_a_key_is_changed_by_putting_the_new_one_before_it(server: SlackServer, tmp_path: Path) -> None:
    async with open_office(server, tmp_path) as office:
        await office.install("T2")
        message = await office.ask("hello", "C2TWO")
    async with open_office(server, tmp_path, keys=(OTHER_KEY, KEY)) as office:
        assert isinstance(await office.answer(message), Delivered)
    async with open_office(server, tmp_path, keys=(OTHER_KEY,)) as office:
        assert isinstance(await office.answer(message, "k2"), Delivered)
    async with open_office(server, tmp_path, start=False) as office:
        with pytest.raises(AdapterNotConfigured, match=r"T2 was encrypted with the key [0-9a-f]{8}"):
            await office.adapter.start(office.inbox.accept)


async def test_a_wrong_key_names_the_remedy_and_loses_nothing(server: SlackServer, tmp_path: Path) -> None:
    async with open_office(server, tmp_path) as office:
        await office.install("T2")
    async with open_office(server, tmp_path, keys=(OTHER_KEY,), start=False) as office:
        with pytest.raises(AdapterNotConfigured, match="put that key behind the newest one") as refused:
            await office.adapter.start(office.inbox.accept)
        assert "hermod installations forget T2" in str(refused.value)
        assert KEY not in str(refused.value)
        thread = thread_of("T2", "C2TWO", "1.1")
        assert isinstance(await office.adapter.post(Reply(thread=thread, text="x", key="k")), RetryLater)
        assert not office.adapter.connected
    async with open_office(server, tmp_path) as office:
        assert isinstance(await office.answer(await office.ask("hello", "C2TWO")), Delivered)


async def test_an_event_whose_workspace_cannot_be_read_now_is_delivered_again(
    server: SlackServer, tmp_path: Path
) -> None:
    async with open_office(server, tmp_path) as office, open_installations(tmp_path, TestClock(), OTHER_KEY) as newer:
        space = server.workspaces["T2"]
        space.installed = True
        await newer.save(
            NewInstallation(
                workspace="T2",
                name="Two",
                token=space.bot_token,
                bot_user=space.bot_user,
                bot=space.bot_id,
                scopes=frozenset(),
                installed_at=office.clock.at,
            )
        )
        server.set_knobs(ack_timeout=0.3)
        await server.mention("hello", channel="C2TWO", copies={"mention": 1, "message": 0})
        await server.wait_until(lambda: len(server.deliveries) == 2 and all(d.error for d in server.deliveries))
        assert office.inbox.items == []


# -- a token of the settings -----------------------------------------------------------------------


async def test_the_workspace_of_a_configured_token_goes_on_beside_those_that_install(
    server: SlackServer, tmp_path: Path
) -> None:
    server.home.installed = True
    server.scopes = tuple(BOT_SCOPES)
    async with open_office(server, tmp_path, bot_token=server.bot_token) as office:
        await office.install("T2")
        for channel in ("C1OPS", "C2TWO"):
            assert isinstance(await office.answer(await office.ask("hello", channel), channel), Delivered)
        kept = await office.installations.find("T0FAKE")
        assert kept is not None
        assert (kept.scopes, kept.installer) == (frozenset(BOT_SCOPES), "")
    async with open_office(server, tmp_path, bot_token=server.bot_token) as office:
        kept = await office.installations.find("T0FAKE")
        assert kept is not None
        assert kept.revision == 1


async def test_a_configured_token_that_is_refused_says_that_it_may_be_removed(
    server: SlackServer, tmp_path: Path
) -> None:
    async with open_office(server, tmp_path, bot_token="xoxb-wrong-0000", start=False) as office:
        with pytest.raises(AdapterNotConfigured, match="or remove bot_token"):
            await office.adapter.start(office.inbox.accept)
