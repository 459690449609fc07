"""Who may do what: one pure decision, asked by every surface.

``decide`` looks at values only. Without rules, people of the installed workspace may speak and use READ tools
on every target; people of other organisations and guests may not. The local terminal may do everything, because
whoever sits there can read the settings anyway. Somebody whose standing the platform does not tell counts
as neither known nor allowed. A refusal says what to ask the operator for, and nothing of
the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, assert_never, runtime_checkable

from adapters.chat import Author, ThreadRef
from agent_core.context import RunContext
from agent_core.tools.approval import Denial
from agent_core.tools.base import Effect, Tool
from bot.settings_tree import AccessSettings

LOCAL_PLATFORM = "terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and from where.

    ``local`` is the person at the terminal of this machine. ``operator`` is whoever wrote a job into the settings, so
    nobody of the platform: only the rules for places and tools apply.
    """

    platform: str
    workspace: str
    channel: str
    user_id: str
    user_name: str = ""
    external: bool = False
    guest: bool = False
    unknown: bool = False
    local: bool = False
    operator: bool = False

    @classmethod
    def of(cls, thread: ThreadRef, author: Author) -> Caller:
        """Return the author of something that came in from ``thread``."""
        return cls(
            platform=thread.platform,
            workspace=thread.workspace,
            channel=thread.channel,
            user_id=author.id,
            user_name=author.name,
            external=author.external,
            guest=author.guest,
            unknown=author.unknown,
            local=thread.platform == LOCAL_PLATFORM,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speak:
    """Ask something at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UseTool:
    """See and use a tool."""

    name: str
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class UseTarget:
    """Let a tool look at a target; None: the caller did not name one of several."""

    name: str | None


AccessAction = Speak | UseTool | UseTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome; ``reason`` is empty when it is allowed, else for the person who asked."""

    allowed: bool
    reason: str = ""


ALLOWED = Decision(allowed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """The rules, as ``[access]`` of the settings has them (docs/settings.md).

    Args:
        workspaces, channels, users, tools: allow lists; empty sets no bound, but ``tools`` then has READ tools only.
        channel_targets: targets by channel; empty sets no bound, else channels without an entry have none.
        targets: the configured targets; the only one of them is meant when a call names none.
    """

    workspaces: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    channel_targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allow_external: bool = False
    allow_guests: bool = False
    targets: tuple[str, ...] = ()


def build_policy(access: AccessSettings, targets: Iterable[str]) -> AccessPolicy:
    """Return the policy of the settings."""
    return AccessPolicy(
        workspaces=access.workspaces,
        channels=access.channels,
        users=access.users,
        tools=access.tools,
        channel_targets=access.channel_targets,
        allow_external=access.allow_external,
        allow_guests=access.allow_guests,
        targets=tuple(targets),
    )


def may_install(policy: AccessPolicy, platform: str, workspace: str) -> bool:
    """Tell whether a workspace may have Hermod at all: without ``workspaces`` every one that can install it."""
    anybody = Caller(platform=platform, workspace=workspace, channel="", user_id="")
    return not policy.workspaces or _matches(policy.workspaces, anybody, workspace)


def decide(policy: AccessPolicy, caller: Caller, *, action: AccessAction) -> Decision:
    """Decide whether ``caller`` may do ``action``. Who may not speak may not do anything else either."""
    if caller.local:
        return ALLOWED
    speak = _decide_speak(policy, caller)
    if not speak.allowed:
        return speak
    match action:
        case Speak():
            return ALLOWED
        case UseTool():
            return _decide_tool(policy, action)
        case UseTarget():
            return _decide_target(policy, caller, action)
        case _:
            assert_never(action)


def _decide_speak(policy: AccessPolicy, caller: Caller) -> Decision:
    if caller.external and not policy.allow_external:
        return _refuse("I only answer people of this organisation", "to let people of other organisations use me")
    if caller.guest and not policy.allow_guests:
        return _refuse("I do not answer guest accounts", "to let guests use me")
    if caller.unknown and not (policy.allow_external and policy.allow_guests):
        reason = "I could not find out who you are, so I do not answer yet; try again in a minute"
        return _refuse(reason, "whether I have the right to look people up, if it stays so")
    return _decide_place(policy, caller)


def _decide_place(policy: AccessPolicy, caller: Caller) -> Decision:
    if policy.workspaces and not _matches(policy.workspaces, caller, caller.workspace):
        return _refuse("I am not open to this workspace", f"to add the workspace {caller.workspace}")
    if policy.channels and not _matches(policy.channels, caller, caller.channel):
        return _refuse("I am not open to this channel", f"to add the channel {caller.channel}")
    if policy.users and not caller.operator and not _matches(policy.users, caller, caller.user_id):
        return _refuse("I am not open to you yet", f"to add your id {caller.user_id}")
    return ALLOWED


def _decide_tool(policy: AccessPolicy, action: UseTool) -> Decision:
    allowed = action.name in policy.tools or "*" in policy.tools
    if allowed or (not policy.tools and action.effect is Effect.READ):
        return ALLOWED
    return _refuse(f"the tool {action.name} is not open to you", f"to allow the tool {action.name}")


def _decide_target(policy: AccessPolicy, caller: Caller, action: UseTarget) -> Decision:
    if not policy.channel_targets:
        return ALLOWED
    here = tuple(
        targets for channel, targets in policy.channel_targets.items() if _matches((channel,), caller, caller.channel)
    )
    open_here = {name.lower() for targets in here or (policy.channel_targets.get("*", ()),) for name in targets}
    if "*" in open_here:
        return ALLOWED
    name = action.name
    if name is None and len(policy.targets) == 1:
        name = policy.targets[0]
    if name is None:
        return Decision(allowed=False, reason="this channel reaches some targets only; name the target that you mean")
    if name.lower() in open_here:
        return ALLOWED
    return _refuse(f"the target {name} is not open to this channel", f"to open {name} to the channel {caller.channel}")


def _refuse(what: str, wish: str) -> Decision:
    return Decision(allowed=False, reason=f"{what}; ask the operator of Hermod {wish}")


def _matches(entries: Iterable[str], caller: Caller, own: str) -> bool:
    """Tell whether an entry (``C1``, ``slack:C1``, ``slack:T1/C1``) names ``own``. ``*`` alone names nothing."""
    names = {own, f"{caller.platform}:{own}", f"{caller.platform}:{caller.workspace}/{own}"}
    folded = {name.lower() for name in names}
    return any(entry.lower() in folded for entry in entries)


# -- for the surfaces ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What one person may do, comparable: messages of people with equal rights may share a turn."""

    local: bool
    speak: bool


class Access:
    """The policy, as the session asks it."""

    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy

    def may_speak(self, caller: Caller) -> str | None:
        """Return None when the caller may ask, else the reason to tell."""
        decision = decide(self._policy, caller, action=Speak())
        return None if decision.allowed else decision.reason

    def rights_of(self, caller: Caller) -> Rights:
        """Return what sets this caller apart from others of the same thread."""
        return Rights(local=caller.local, speak=self.may_speak(caller) is None)

    def scope_of(self, callers: Iterable[Caller]) -> str:
        """Name who may be given an answer that was kept for these callers: the same place, with the same rights."""
        places = {f"{c.platform}:{c.workspace}/{c.channel} {self.rights_of(c)}" for c in callers}
        return " ".join(sorted(places))


@runtime_checkable
class AskedByOne(Protocol):
    """What a run's ``deps`` may be: it knows the one person who asked."""

    @property
    def caller(self) -> Caller:
        """Who asked."""
        ...


@runtime_checkable
class AskedByMany(Protocol):
    """What a run's ``deps`` may be: it knows everyone who asked."""

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Who asked, each of them."""
        ...


class AccessAuthorizer:
    """The policy, as the engine asks it (``agent_core.tools.approval.Authorizer``).

    Everyone who asked has to be allowed. A run that does not say who asked is allowed nothing.
    """

    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy

    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        """True when the model may know of the tool."""
        return self._decide(ctx, UseTool(name=tool.name, effect=tool.effect)).allowed

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        """Refuse a tool, or a target, that one of the callers may not use."""
        decision = self._decide(ctx, UseTool(name=tool.name, effect=tool.effect))
        if decision.allowed and "target" in tool.arguments.model_fields:
            target = arguments.get("target")
            decision = self._decide(ctx, UseTarget(name=target if isinstance(target, str) and target else None))
        return None if decision.allowed else Denial(reason=decision.reason)

    def _decide(self, ctx: RunContext, action: AccessAction) -> Decision:
        decisions = [decide(self._policy, caller, action=action) for caller in find_callers(ctx.deps)]
        if not decisions:
            return _refuse("I cannot tell who asked", "to look at the log")
        return next((decision for decision in decisions if not decision.allowed), ALLOWED)


def find_callers(deps: object) -> tuple[Caller, ...]:
    """Return everyone who asked, from a run's ``deps``; nobody when it does not say."""
    match deps:
        case AskedByMany():
            return deps.callers
        case AskedByOne():
            return (deps.caller,)
        case _:
            return ()
