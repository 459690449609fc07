"""Tokens at rest: encrypted for their workspace with the newest key, told apart from a wrong key, found in no text."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import AdapterError, AdapterNotConfigured
from adapters.slack.installation import NewInstallation
from agent_core.context import SystemClock
from bot.installations import (
    SealBroken,
    StoredInstallations,
    TokenSeal,
    forget_installation,
    report_installations,
)
from bot.redact import MARK, SecretRedactor
from bot.storage import open_store
from bot.storage.base import Store

OLD, NEW = "an-old-key-of-the-tests-0123456789", "a-new-key-of-the-tests-0123456789"
TOKEN = "xoxb-2222222222-3333333333-CanaryCanary0123456789ab"
T2 = NewInstallation(
    workspace="T2",
    name="Two",
    token=TOKEN,
    bot_user="U2BOT",
    bot="B2",
    scopes=frozenset({"chat:write"}),
    installer="U1ALICE",
    installed_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/hermod.db")
    await opened.open()
    yield opened
    await opened.close()


def keep(store: Store, *keys: str) -> StoredInstallations:
    return StoredInstallations(store, TokenSeal(keys), SystemClock())


async def stored_token(store: Store, workspace: str = "T2") -> str:
    row = await store.find_installation("slack", workspace)
    assert row is not None
    return row.token


# -- the seal --------------------------------------------------------------------------------------


@given(token=st.text(st.characters(codec="utf-8"), max_size=300), place=st.text(max_size=40))
def test_what_was_sealed_is_read_back_in_its_place_only(token: str, place: str) -> None:
    seal = TokenSeal([NEW])
    sealed = seal.seal(token, place=place)
    assert seal.unseal(sealed, place=place) == token
    with pytest.raises(SealBroken) as broken:
        seal.unseal(sealed, place=f"{place}x")
    assert broken.value.key_id == "", "the key is there: the row was moved"
    assert sealed != seal.seal(token, place=place), "the same token never looks the same twice"
    assert len(token) < 8 or token not in sealed


@given(at=st.integers(min_value=0), sign=st.sampled_from("Aa0.-_=~ é"))
def test_a_changed_character_is_noticed(at: int, sign: str) -> None:
    seal = TokenSeal([NEW])
    sealed = seal.seal(TOKEN, place="slack:T2")
    at %= len(sealed)
    changed = sealed[:at] + sign + sealed[at + 1 :]
    if changed != sealed and base64_of(changed) != base64_of(sealed):
        with pytest.raises(SealBroken):
            seal.unseal(changed, place="slack:T2")


def base64_of(sealed: str) -> tuple[str, bytes]:
    """What a sealed token says: the last character of base64 has bits that say nothing."""
    head, _, body = sealed.rpartition(".")
    try:
        return head, base64.b64decode(body, altchars=b"-_", validate=True)
    except ValueError:
        return head, b""


def test_a_key_that_is_not_there_is_named_and_the_newest_one_seals() -> None:
    old, both, new = TokenSeal([OLD]), TokenSeal([NEW, OLD]), TokenSeal([NEW])
    sealed = old.seal(TOKEN, place="p")
    assert both.unseal(sealed, place="p") == TOKEN
    assert not both.is_newest(sealed)
    with pytest.raises(SealBroken) as broken:
        new.unseal(sealed, place="p")
    assert broken.value.key_id == old.newest
    fresh = both.seal(TOKEN, place="p")
    assert both.is_newest(fresh)
    assert new.unseal(fresh, place="p") == TOKEN
    assert both.newest == new.newest != old.newest


def test_a_seal_shows_no_key_and_needs_one() -> None:
    seal = TokenSeal([NEW, OLD])
    assert NEW not in repr(seal)
    assert seal.newest in repr(seal)
    assert seal.newest not in NEW
    with pytest.raises(ValueError, match="one key"):
        TokenSeal([])


# -- what is kept ----------------------------------------------------------------------------------


async def test_an_installation_comes_back_as_it_was_kept_and_its_row_holds_no_token(store: Store) -> None:
    kept = await keep(store, NEW).save(T2)
    assert kept is not None
    assert (kept.token, kept.revision) == (TOKEN, 1)
    assert await keep(store, NEW).find("T2") == kept
    assert await keep(store, NEW).load_all(most=5) == (kept,)
    assert await keep(store, NEW).load_all(most=0) == ()
    sealed = await stored_token(store)
    assert TOKEN not in sealed
    assert base64.urlsafe_b64encode(TOKEN.encode()).decode()[:20] not in sealed


async def test_a_new_key_takes_over_what_the_old_one_sealed_and_then_the_old_one_can_go(store: Store) -> None:
    await keep(store, OLD).save(T2)
    await keep(store, OLD).save(replace(T2, workspace="T3"))
    await keep(store, NEW, OLD).prepare()
    await keep(store, NEW).prepare()
    assert {i.workspace: i.token for i in await keep(store, NEW).load_all(most=9)} == {"T2": TOKEN, "T3": TOKEN}
    sealed = await stored_token(store)
    await keep(store, NEW, OLD).prepare()
    assert await stored_token(store) == sealed, "nothing is written where nothing changes"


async def test_a_wrong_key_names_what_is_missing_and_changes_nothing(store: Store) -> None:
    await keep(store, OLD).save(T2)
    await keep(store, NEW).save(replace(T2, workspace="T3"))
    before = await stored_token(store), await stored_token(store, "T3")
    wrong = keep(store, NEW)
    with pytest.raises(AdapterNotConfigured) as refused:
        await wrong.prepare()
    text = str(refused.value)
    assert f"token of T2 was encrypted with the key {TokenSeal([OLD]).newest}, which [security] key does not" in text
    assert "behind the newest one, after a comma" in text
    assert "T3" not in text
    with pytest.raises(AdapterError, match="token of T2"):
        await wrong.find("T2")
    assert (await stored_token(store), await stored_token(store, "T3")) == before
    assert await wrong.find("T3") is not None
    assert await wrong.remove("T2", reason="app_uninstalled"), "the news of a removal need no key"
    await wrong.prepare()


async def test_a_token_that_was_put_into_another_workspaces_row_is_not_used(store: Store) -> None:
    await keep(store, NEW).save(T2)
    await keep(store, NEW).save(replace(T2, workspace="T3", token="xoxb-3333333333-other"))
    moved = await stored_token(store, "T3")
    assert await store.replace_token("slack", "T2", before=await stored_token(store), after=moved)
    with pytest.raises(AdapterError, match="belongs to another workspace; run `hermod installations forget T2`"):
        await keep(store, NEW).find("T2")


async def test_a_lost_key_is_overcome_by_forgetting_and_installing_anew(store: Store) -> None:
    await keep(store, OLD).save(T2)
    assert await forget_installation(store, "T2", SystemClock())
    assert not await forget_installation(store, "T2", SystemClock())
    after = keep(store, NEW)
    await after.prepare()
    assert await after.find("T2") is None
    assert await after.save(T2) is not None
    assert (await after.find("T2")) is not None


async def test_storage_that_fails_is_an_error_of_the_adapter_and_not_an_absence(store: Store) -> None:
    await store.close()
    for call in (keep(store, NEW).find("T2"), keep(store, NEW).save(T2), keep(store, NEW).load_all(most=1)):
        with pytest.raises(AdapterError, match="cannot be used now"):
            await call


async def test_installing_and_removing_are_lines_of_the_audit_chain_without_a_token(
    store: Store, tmp_path: Path
) -> None:
    kept = keep(store, NEW)
    await kept.save(T2)
    await kept.save(T2, unless_known=True)
    assert await kept.remove("T2", reason="app_uninstalled", revision=1)
    assert not await kept.remove("T2", reason="token_revoked")
    assert await store.verify_audit() == (2, None)


# -- what is told ----------------------------------------------------------------------------------


async def test_a_report_tells_missing_scopes_refused_tokens_and_what_is_over(store: Store) -> None:
    await keep(store, NEW).save(T2)
    await keep(store, OLD).save(replace(T2, workspace="T3"))
    for workspace in ("T4", "T5"):
        await keep(store, NEW).save(replace(T2, workspace=workspace))
    await keep(store, NEW).remove("T4", reason="app_uninstalled")
    asked: list[str] = []

    async def fetch(token: str) -> frozenset[str] | None:
        asked.append(token)
        if len(asked) == 2:
            raise AdapterNotConfigured("slack: bot_token was not accepted. Slack refused: account_inactive; set it")
        return frozenset({"commands"})

    reports = await report_installations(store, TokenSeal([NEW]), scopes=["chat:write", "commands"], fetch=fetch)
    told = {report.workspace: report for report in reports}
    assert told["T2"].missing == ("chat:write",)
    assert "was encrypted with the key" in told["T3"].problem
    assert told["T4"].removed.startswith("app_uninstalled at ")
    assert "account_inactive" in told["T5"].problem
    assert asked == [TOKEN, TOKEN]
    assert TOKEN not in repr(reports)


@pytest.mark.parametrize("token", [TOKEN, "xoxe.xoxb-1-Mi0yLTIyMjIy", "xoxb-t2-0123456789ab"])
def test_a_kept_token_is_redacted_without_anybody_telling_the_redactor(token: str) -> None:
    redactor = SecretRedactor(())
    for text in (
        token,
        quote(token),
        json.dumps({"a": token}),
        f"Bearer {token}",
        f"?token={token}&x=1",
        token.encode().hex(),
    ):
        clean = redactor.redact(f"before {text} after")
        assert MARK in clean
        assert token[5:] not in clean
        assert token[5:].encode().hex() not in clean


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", [b"", b"x", b"xx", b"Basic dXNlcg:", b'{"token": "'])
@pytest.mark.parametrize("after", [b"", b"x", b'", "more": 1}'])
def test_a_kept_token_is_redacted_inside_base64_too(
    encode: Callable[[bytes], bytes], before: bytes, after: bytes
) -> None:
    redactor = SecretRedactor(())
    clean = redactor.redact(f"before {encode(before + TOKEN.encode() + after).decode()} after")
    left = clean.removeprefix("before ").removesuffix(" after").replace(MARK, "")
    assert len(left) <= len(encode(before)), "nothing of the token is left"
    assert redactor.redact(clean) == clean


def test_ordinary_words_and_base64_stay_as_they_are() -> None:
    redactor = SecretRedactor(())
    for text in ("a fox box-like thing", base64.b64encode(b"an ordinary text of some length").decode(), "eG94Y short"):
        assert redactor.redact(text) == text
