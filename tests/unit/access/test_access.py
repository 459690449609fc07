from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from adapters.chat import Author, ThreadRef
from agent_core.context import RunContext
from agent_core.tools.approval import Authorizer
from agent_core.tools.base import Effect, Tool
from bot.access import (
    Access,
    AccessAction,
    AccessAuthorizer,
    AccessPolicy,
    Caller,
    Speak,
    UseTarget,
    UseTool,
    build_policy,
    decide,
)
from bot.settings_tree import AccessSettings

OPEN = AccessPolicy()
READ = UseTool(name="get_slow_queries", effect=Effect.READ)
WRITE = UseTool(name="cancel_query", effect=Effect.WRITE)
EXEC = UseTool(name="run_python", effect=Effect.EXEC)


def caller(
    *, user: str = "U1", channel: str = "C1", workspace: str = "T1", external: bool = False, guest: bool = False
) -> Caller:
    return Caller(platform="slack", workspace=workspace, channel=channel, user_id=user, external=external, guest=guest)


def allows(policy: AccessPolicy, who: Caller, action: AccessAction) -> bool:
    return decide(policy, who, action=action).allowed


def test_without_rules_people_of_the_workspace_may_speak_and_use_read_tools_on_every_target() -> None:
    assert allows(OPEN, caller(), Speak())
    assert allows(OPEN, caller(), READ)
    assert allows(OPEN, caller(), UseTarget(name="shop"))


@pytest.mark.parametrize("action", [WRITE, EXEC])
def test_without_rules_nobody_may_use_tools_that_change_something(action: AccessAction) -> None:
    assert not allows(OPEN, caller(), action)


@pytest.mark.parametrize("action", [Speak(), READ, UseTarget(name="shop")])
def test_external_people_and_guests_are_refused_by_default(action: AccessAction) -> None:
    assert not allows(OPEN, caller(external=True), action)
    assert not allows(OPEN, caller(guest=True), action)


def test_external_people_and_guests_are_let_in_one_by_one() -> None:
    assert allows(AccessPolicy(allow_external=True), caller(external=True), READ)
    assert allows(AccessPolicy(allow_guests=True), caller(guest=True), READ)
    assert not allows(AccessPolicy(allow_guests=True), caller(guest=True, external=True), READ)


@pytest.mark.parametrize("action", [Speak(), READ, WRITE, EXEC, UseTarget(name="shop"), UseTarget(name=None)])
def test_the_local_terminal_may_do_everything(action: AccessAction) -> None:
    closed = AccessPolicy(users=("U9",), tools=("calculator",), channel_targets={"C9": ("shop",)})
    local = Caller(platform="terminal", workspace="local", channel="local", user_id="root", local=True)
    assert allows(closed, local, action)


@pytest.mark.parametrize("field", ["workspaces", "channels", "users"])
def test_an_allow_list_lets_in_whom_it_names_in_each_way_of_writing(field: str) -> None:
    own = {"workspaces": "T1", "channels": "C1", "users": "U1"}[field]
    for entry in (own, own.lower(), f"slack:{own}", f"slack:T1/{own}"):
        policy = build_policy(AccessSettings.model_validate({field: ["X0", entry]}), ())
        assert allows(policy, caller(), READ), entry
    for entry in ("X0", f"discord:{own}", f"slack:T2/{own}", "*", own + "0"):
        policy = build_policy(AccessSettings.model_validate({field: [entry]}), ())
        assert not allows(policy, caller(), Speak()), entry
        assert not allows(policy, caller(), READ), entry


def test_every_list_has_to_agree() -> None:
    policy = AccessPolicy(workspaces=("T1",), channels=("C1",), users=("U1",))
    assert allows(policy, caller(), READ)
    assert not allows(policy, caller(user="U2"), READ)
    assert not allows(policy, caller(channel="C2"), READ)
    assert not allows(policy, caller(workspace="T2"), READ)


def test_named_tools_are_the_only_ones_whatever_they_do() -> None:
    policy = AccessPolicy(tools=("cancel_query",))
    assert allows(policy, caller(), WRITE)
    assert not allows(policy, caller(), READ)
    assert allows(AccessPolicy(tools=("*",)), caller(), EXEC)


def test_targets_are_opened_channel_by_channel() -> None:
    policy = AccessPolicy(channel_targets={"C1": ("shop",), "slack:T1/C2": ("*",)}, targets=("shop", "billing"))
    assert allows(policy, caller(channel="C1"), UseTarget(name="SHOP"))
    assert not allows(policy, caller(channel="C1"), UseTarget(name="billing"))
    assert allows(policy, caller(channel="C2"), UseTarget(name="billing"))
    assert not allows(policy, caller(channel="C3"), UseTarget(name="shop"))


def test_a_star_opens_targets_to_the_channels_without_an_entry_only() -> None:
    policy = AccessPolicy(channel_targets={"C1": (), "*": ("shop",)}, targets=("shop",))
    assert allows(policy, caller(channel="C3"), UseTarget(name="shop"))
    assert not allows(policy, caller(channel="C1"), UseTarget(name="shop"))


def test_a_call_without_target_means_the_only_one_and_is_checked_against_it() -> None:
    policy = AccessPolicy(channel_targets={"C1": ("shop",)}, targets=("billing",))
    assert not allows(policy, caller(), UseTarget(name=None))
    assert allows(AccessPolicy(channel_targets={"C1": ("shop",)}, targets=("shop",)), caller(), UseTarget(name=None))


def test_a_call_without_target_among_several_is_refused_where_some_are_closed() -> None:
    policy = AccessPolicy(channel_targets={"C1": ("shop",)}, targets=("shop", "billing"))
    assert "name the target" in decide(policy, caller(), action=UseTarget(name=None)).reason


@pytest.mark.parametrize(
    "policy",
    [
        AccessPolicy(workspaces=("T-other",)),
        AccessPolicy(channels=("C-other",)),
        AccessPolicy(users=("U-other",)),
        AccessPolicy(tools=("other-tool",)),
    ],
)
def test_a_refusal_says_what_to_ask_for_and_nothing_of_the_rules(policy: AccessPolicy) -> None:
    reason = decide(policy, caller(), action=READ).reason
    assert "ask the operator" in reason
    assert "other" not in reason


IDS = st.sampled_from(["A1", "B1", "C1"])


@given(
    lists=st.fixed_dictionaries({name: st.lists(IDS, max_size=2).map(tuple) for name in ("channels", "users")}),
    who=st.builds(caller, user=IDS, channel=IDS, external=st.booleans(), guest=st.booleans()),
    action=st.sampled_from([READ, WRITE, UseTarget(name="shop")]),
)
def test_who_may_not_speak_may_do_nothing(lists: dict[str, tuple[str, ...]], who: Caller, action: AccessAction) -> None:
    policy = AccessPolicy(channels=lists["channels"], users=lists["users"], tools=("*",))
    if not allows(policy, who, Speak()):
        assert not allows(policy, who, action)


def test_the_policy_is_read_from_the_settings() -> None:
    settings = AccessSettings(users=("U1",), channel_targets={"C1": ("shop",)}, allow_guests=True)
    policy = build_policy(settings, ["shop"])
    assert policy == AccessPolicy(
        users=("U1",), channel_targets={"C1": ("shop",)}, allow_guests=True, targets=("shop",)
    )


# -- the engine's and the session's questions ------------------------------------------------------


class Arguments(BaseModel):
    target: str | None = None


class NoArguments(BaseModel):
    pass


@dataclass(frozen=True)
class OneAsked:
    caller: Caller


@dataclass(frozen=True)
class ManyAsked:
    callers: tuple[Caller, ...]


def tool(arguments: type[BaseModel] = Arguments, effect: Effect = Effect.READ) -> Tool:
    async def invoke(ctx: RunContext, args: BaseModel) -> object:
        return None

    return Tool(name="t", description="", arguments=arguments, parameters={}, invoke=invoke, effect=effect)


def context(deps: object) -> RunContext:
    return RunContext(run_id="r", thread_id="t", deadline=1.0, deps=deps)


async def ask(policy: AccessPolicy, deps: object, arguments: Mapping[str, object], chosen: Tool | None = None) -> str:
    authorizer: Authorizer = AccessAuthorizer(policy)
    denial = await authorizer.authorize(context(deps), chosen or tool(), arguments)
    return "" if denial is None else denial.reason


async def test_the_engine_is_refused_a_target_that_is_closed_to_the_channel() -> None:
    policy = AccessPolicy(channel_targets={"C1": ("shop",)}, targets=("shop", "billing"))
    assert await ask(policy, OneAsked(caller()), {"target": "shop"}) == ""
    assert "billing" in await ask(policy, OneAsked(caller()), {"target": "billing"})
    assert "name the target" in await ask(policy, OneAsked(caller()), {"target": None})
    assert await ask(policy, OneAsked(caller()), {}, tool(NoArguments)) == ""


async def test_everyone_of_a_turn_has_to_be_allowed() -> None:
    policy = AccessPolicy(users=("U1",))
    assert await ask(policy, ManyAsked((caller(), caller())), {}) == ""
    assert "U2" in await ask(policy, ManyAsked((caller(), caller(user="U2"))), {})


@pytest.mark.parametrize("deps", [None, object(), ManyAsked(())])
async def test_a_run_that_does_not_say_who_asked_is_allowed_nothing(deps: object) -> None:
    assert await ask(OPEN, deps, {}) != ""
    assert not AccessAuthorizer(OPEN).visible(context(deps), tool())


def test_a_tool_that_may_not_be_used_is_not_shown_to_the_model() -> None:
    authorizer = AccessAuthorizer(OPEN)
    assert authorizer.visible(context(OneAsked(caller())), tool())
    assert not authorizer.visible(context(OneAsked(caller())), tool(effect=Effect.WRITE))
    assert not authorizer.visible(context(OneAsked(caller(external=True))), tool())


def test_the_session_learns_why_somebody_may_not_speak_and_whose_rights_are_equal() -> None:
    access = Access(AccessPolicy(users=("U1", "U2")))
    assert access.may_speak(caller()) is None
    assert "U3" in (access.may_speak(caller(user="U3")) or "")
    assert access.rights_of(caller()) == access.rights_of(caller(user="U2"))
    assert access.rights_of(caller()) != access.rights_of(caller(user="U3"))


def test_a_caller_is_made_from_the_address_and_the_author() -> None:
    thread = ThreadRef(platform="slack", workspace="T1", channel="C1", thread="1.1")
    author = Author(id="U1", name="Ada", external=True)
    assert Caller.of(thread, author) == Caller(
        platform="slack", workspace="T1", channel="C1", user_id="U1", user_name="Ada", external=True
    )
    terminal = ThreadRef(platform="terminal", workspace="local", channel="local", thread="1")
    assert Caller.of(terminal, author).local
