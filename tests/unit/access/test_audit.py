from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent_core.context import RunContext, SystemClock
from agent_core.tools.base import Tool
from bot.access import AccessAuthorizer, AccessPolicy, Caller
from bot.audit import AuditedAuthorizer, AuditLog, digest
from bot.redact import SecretRedactor
from bot.storage import open_store
from bot.storage.base import Store, StoreError


class Arguments(BaseModel):
    target: str | None = None
    sql: str = ""


async def invoke(ctx: RunContext, args: BaseModel) -> object:
    return None


TOOL = Tool(name="t", description="", arguments=Arguments, parameters={}, invoke=invoke)
ADA = Caller(platform="slack", workspace="T1", channel="C1", user_id="U1", user_name="Ada")


@dataclass(frozen=True)
class Asked:
    caller: Caller = ADA


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/hermod.db")
    await opened.open()
    yield opened
    await opened.close()


def context() -> RunContext:
    return RunContext(run_id="r1", thread_id="slack:T1/C1/1.1", deadline=1.0, deps=Asked())


@pytest.mark.parametrize(("users", "action"), [((), "tool.allowed"), (("U9",), "tool.denied")])
async def test_every_decision_about_a_call_is_in_the_chain_without_its_contents(
    store: Store, users: tuple[str, ...], action: str
) -> None:
    rows = []

    class Recorder(AuditLog):
        async def record(self, action: str, **words: object) -> None:
            rows.append((action, words))
            await super().record(action, **words)  # type: ignore[arg-type]

    audited = AuditedAuthorizer(AccessAuthorizer(AccessPolicy(users=users)), Recorder(store, SystemClock()))
    denial = await audited.authorize(context(), TOOL, {"target": "shop", "sql": "select 'private'"})
    assert (denial is None) == (action == "tool.allowed")
    assert await store.verify_audit() == (1, None)
    ((recorded, words),) = rows
    assert recorded == action
    assert words["actor"] == "slack:T1/U1"
    assert "private" not in json.dumps(words)
    assert "Ada" not in json.dumps(words)


async def test_an_address_that_is_given_for_a_target_keeps_its_password_out_of_the_chain(
    store: Store, tmp_path: Path
) -> None:
    audited = AuditedAuthorizer(AccessAuthorizer(AccessPolicy()), AuditLog(store, SystemClock()))
    ctx = replace(context(), redactor=SecretRedactor([]))
    await audited.authorize(ctx, TOOL, {"target": "postgres://ada:hunter2000@db/shop"})
    await store.close()
    with sqlite3.connect(tmp_path / "hermod.db") as connection:
        ((detail,),) = connection.execute("SELECT detail FROM audit").fetchall()
    connection.close()
    assert "hunter2000" not in detail
    assert "db/shop" in detail


async def test_a_call_that_cannot_be_recorded_is_not_allowed(store: Store) -> None:
    await store.close()
    audited = AuditedAuthorizer(AccessAuthorizer(AccessPolicy()), AuditLog(store, SystemClock()))
    with pytest.raises(StoreError):
        await audited.authorize(context(), TOOL, {})


def test_equal_values_have_equal_digests_whatever_their_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
