"""Where Hermod is installed, and what holds only once."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

import pytest

from bot.storage.base import Store, StoreError
from bot.storage.installations import InstallationRow, NewInstallationRow
from tests.contract.store.backends import Backend
from tests.contract.store.makers import T0, at

T1 = NewInstallationRow(
    platform="slack",
    workspace="T1",
    name="First ✓",
    bot_user="U1BOT",
    bot="B1",
    scopes=frozenset({"chat:write", "commands"}),
    token="sealed-1",
    installed_at=T0,
    app="A1",
    installer="U1ALICE",
)
ORG = replace(T1, workspace="E1", name="", enterprise="E1", org_wide=True, token="sealed-e", installed_at=at(5))


def row(new: NewInstallationRow, revision: int = 1) -> InstallationRow:
    return InstallationRow(**asdict(new), revision=revision)


async def test_an_installation_is_found_as_it_was_saved(store: Store) -> None:
    assert await store.find_installation("slack", "T1") is None
    assert await store.save_installation(T1) == row(T1)
    assert await store.save_installation(ORG) == row(ORG)
    assert await store.find_installation("slack", "T1") == row(T1)
    assert await store.find_installation("slack", "t1") is None
    assert await store.find_installation("discord", "T1") is None
    assert await store.load_installations("slack") == (row(ORG), row(T1))
    assert await store.load_installations("discord") == ()


async def test_installing_anew_replaces_the_row_and_raises_its_revision(store: Store) -> None:
    await store.save_installation(T1)
    again = replace(T1, token="sealed-2", scopes=frozenset({"chat:write"}), installed_at=at(60), installer="U2BOB")
    assert await store.save_installation(again) == row(again, revision=2)
    assert await store.load_installations("slack") == (row(again, revision=2),)


async def test_what_is_known_already_is_left_alone_where_that_is_wished(store: Store) -> None:
    assert await store.save_installation(T1, unless_known=True) == row(T1)
    assert await store.save_installation(replace(T1, token="other"), unless_known=True) is None
    await store.remove_installation("slack", "T1", reason="app_uninstalled", now=at(1))
    assert await store.save_installation(replace(T1, token="other"), unless_known=True) is None
    found = await store.find_installation("slack", "T1")
    assert found is not None
    assert found.removed_at is not None


async def test_a_removed_workspace_keeps_its_row_without_its_token_and_is_revived_by_installing(store: Store) -> None:
    await store.save_installation(T1)
    await store.save_installation(ORG)
    assert await store.remove_installation("slack", "T1", reason="app_uninstalled", now=at(60))
    gone = replace(row(T1), token="", revision=2, removed_at=at(60), removed_because="app_uninstalled")
    assert await store.find_installation("slack", "T1") == gone
    assert not await store.remove_installation("slack", "T1", reason="tokens_revoked", now=at(61)), "it is gone already"
    assert not await store.remove_installation("slack", "T9", reason="tokens_revoked", now=at(61))
    assert await store.find_installation("slack", "T1") == gone
    assert (await store.find_installation("slack", "E1")) == row(ORG)
    revived = replace(T1, token="sealed-2", installed_at=at(90))
    assert await store.save_installation(revived) == row(revived, revision=3)


async def test_news_that_come_late_do_not_end_a_later_installation(store: Store) -> None:
    await store.save_installation(replace(T1, installed_at=at(60)))
    assert not await store.remove_installation("slack", "T1", reason="late", now=at(90), installed_by=at(59))
    assert not await store.remove_installation("slack", "T1", reason="late", now=at(90), revision=7)
    assert await store.remove_installation("slack", "T1", reason="now", now=at(90), installed_by=at(60), revision=1)


async def test_of_many_that_remove_at_once_one_does(store: Store, other: Store) -> None:
    await store.save_installation(T1)
    done = await asyncio.gather(
        *(s.remove_installation("slack", "T1", reason="r", now=at(1)) for s in (store, other) * 4)
    )
    assert sum(done) == 1


async def test_a_token_takes_another_form_only_in_the_place_of_the_one_that_was_read(store: Store) -> None:
    await store.save_installation(T1)
    assert await store.replace_token("slack", "T1", before="sealed-1", after="sealed-1b")
    assert await store.find_installation("slack", "T1") == row(replace(T1, token="sealed-1b"))
    assert not await store.replace_token("slack", "T1", before="sealed-1", after="sealed-1c")
    await store.remove_installation("slack", "T1", reason="r", now=at(1))
    assert not await store.replace_token("slack", "T1", before="sealed-1b", after="sealed-1c")
    found = await store.find_installation("slack", "T1")
    assert found is not None
    assert found.token == ""


async def test_a_removed_workspace_with_a_token_cannot_be_a_row(store: Store, backend: Backend, url: str) -> None:
    await store.save_installation(T1)
    with pytest.raises(Exception, match=r"(?i)check"):
        backend.run_sql(url, "UPDATE installation SET removed_at = 1")
    with pytest.raises(StoreError):
        await store.save_installation(replace(T1, token=""))


async def test_a_nonce_holds_once_in_whichever_process(store: Store, other: Store) -> None:
    async def use(which: Store, nonce: str) -> bool:
        return await which.use_nonce(nonce, now=T0, expires_at=at(600))

    assert sorted(await asyncio.gather(*(use(s, "n1") for s in (store, other) * 4))) == [False] * 7 + [True]
    assert await use(other, "n2")
    assert not await store.use_nonce("n1", now=at(599), expires_at=at(900))


async def test_nonces_are_forgotten_once_they_are_over(store: Store, backend: Backend, url: str) -> None:
    await store.use_nonce("n1", now=T0, expires_at=at(600))
    assert await store.use_nonce("n2", now=at(601), expires_at=at(1200))
    assert await store.use_nonce("n1", now=at(601), expires_at=at(1200)), "whoever checks its age refuses it first"


async def test_installations_are_there_after_a_restart(store: Store, url: str, other: Store) -> None:
    await store.save_installation(T1)
    await store.close()
    assert await other.find_installation("slack", "T1") == row(T1)
