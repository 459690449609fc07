"""The tools of this folder, as a model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from agent_core.context import Clock
from agent_core.llm.types import ToolExample
from agent_core.tools.base import Effect
from agent_core.tools.registry import ToolRegistry
from bot.tools.activity.answer import BlockingTree, Preflight, RunningQueries
from bot.tools.activity.blocking import read_blocking_tree
from bot.tools.activity.ending import EndingArguments, explain_ending
from bot.tools.activity.preflight import read_preflight
from bot.tools.activity.running import read_running_queries
from bot.tools.target_argument import TARGET, with_names
from bot.tools.targets import Targets

RUNNING_DESCRIPTION = """\
List what a live Postgres, MySQL or MariaDB server executes at this very moment, the longest first, and the sessions \
that sit idle in an open transaction. Use it for "what is running now", "who is connected and working", "active \
sessions", "processlist", "stuck statements", "idle in transaction", "正在运行", "当前会话", "空闲事务". Not for \
the past: that is get_slow_queries. Parallel workers are counted with their leader.

`age_s`: how long the statement has run; for "idle in transaction" how long the session has done nothing. `wait`: what \
it waits for. Statements have no literals. pid, backend_start and query_id together name a session for cancel_query.

Example: {"min_seconds": 5}"""

BLOCKING_DESCRIPTION = """\
Show who blocks whom on a live Postgres, MySQL or MariaDB server as a tree, the root blocker first, with the locks \
that are held and wanted. Use it for "who blocks whom", "locks", "lock wait", "everything hangs", "deadlock", "root \
blocker", "谁在阻塞", "锁等待", "死锁". `summary` says in a sentence who the root is and what it does: end or finish \
that one, not the waiters. pid 0 is a prepared transaction, which belongs to no session.

Example: {}"""

PREFLIGHT_DESCRIPTION = """\
Check what Hermod's account can see on a database server: rights, extensions with their versions, settings that \
matter, primary or standby, pooler. `to_run` has the exact GRANT and ALTER SYSTEM lines for what is missing. Use it \
for "is this target set up right", "which permissions are missing", "preflight", "check the setup", "权限检查", \
"检查配置".

Example: {}"""

_ENDING = """\
In this release nobody can approve that, so it ends nothing: it looks the session up, checks that it is still the one \
that is meant, and answers `approval_required` with what would have been ended and the line a person can run. Take \
pid, query_id and backend_start from running_queries or blocking_tree."""

CANCEL_DESCRIPTION = f"""\
Ask to cancel the statement that one session executes; the session itself stays. Use it for "cancel query", "stop that \
statement", "取消查询". {_ENDING}

Example: {{"pid": 4711, "expected_query_id": "-77540662", "expected_backend_start": "2026-01-31T08:00:00.123456Z", \
"reason": "blocks the checkout"}}"""

TERMINATE_DESCRIPTION = f"""\
Ask to end one session with its transaction. Use it for "kill session", "terminate backend", "disconnect that pid", \
"终止会话", "杀掉会话". {_ENDING}

Example: {{"pid": 4711, "expected_query_id": "-77540662", "expected_backend_start": "2026-01-31T08:00:00.123456Z", \
"reason": "idle in transaction for an hour"}}"""


class RunningArguments(BaseModel):
    """Arguments of ``running_queries``."""

    min_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=31_536_000,
            allow_inf_nan=False,
            description="Least age in seconds, of the statement or of the idle transaction.",
            json_schema_extra={"format": "duration-s"},
        ),
    ] = 0.0
    include_idle_in_tx: Annotated[
        bool, Field(description="Also list sessions that hold a transaction open and do nothing.")
    ] = True
    target: Annotated[str | None, Field(description=TARGET)] = None


class BlockingArguments(BaseModel):
    """Arguments of ``blocking_tree``."""

    target: Annotated[str | None, Field(description=TARGET)] = None
    min_wait_s: Annotated[
        float,
        Field(
            ge=0,
            le=31_536_000,
            allow_inf_nan=False,
            description="Leave out waits shorter than this, in seconds.",
            json_schema_extra={"format": "duration-s"},
        ),
    ] = 0.0


class PreflightArguments(BaseModel):
    """Arguments of ``preflight``."""

    target: Annotated[str | None, Field(description=TARGET)] = None


def register_activity_tools(registry: ToolRegistry, targets: Targets, clock: Clock) -> None:
    """Register ``running_queries``, ``blocking_tree``, ``preflight``, ``cancel_query`` and ``terminate_session``.

    The last two have the effect WRITE and are never run (see ``ending``); ``ending.NoApprovals`` as the executor's
    approver says for them what would have been ended.

    Args:
        registry: where they go.
        targets: what they may look at; the names become an enum in the schema.
        clock: measures what an answer took.

    Raises:
        ConfigError: the names are taken.
    """
    names = sorted(targets)

    async def running_queries(arguments: RunningArguments) -> RunningQueries:
        return await read_running_queries(
            targets,
            clock,
            min_seconds=arguments.min_seconds,
            include_idle_in_tx=arguments.include_idle_in_tx,
            target=arguments.target,
        )

    async def blocking_tree(arguments: BlockingArguments) -> BlockingTree:
        return await read_blocking_tree(targets, clock, target=arguments.target, min_wait_s=arguments.min_wait_s)

    async def preflight(arguments: PreflightArguments) -> Preflight:
        return await read_preflight(targets, clock, target=arguments.target)

    registry.register(
        running_queries,
        description=RUNNING_DESCRIPTION,
        arguments=with_names(RunningArguments, names),
        examples=_running_examples(names),
    )
    registry.register(
        blocking_tree,
        description=BLOCKING_DESCRIPTION,
        arguments=with_names(BlockingArguments, names),
        examples=_blocking_examples(names),
    )
    registry.register(
        preflight,
        description=PREFLIGHT_DESCRIPTION,
        arguments=with_names(PreflightArguments, names),
        examples=_preflight_examples(names),
    )
    _register_ending(registry, targets, names)


def _register_ending(registry: ToolRegistry, targets: Targets, names: Sequence[str]) -> None:
    async def cancel_query(arguments: EndingArguments) -> None:
        raise await explain_ending(targets, "cancel_query", arguments)

    async def terminate_session(arguments: EndingArguments) -> None:
        raise await explain_ending(targets, "terminate_session", arguments)

    registry.register(
        cancel_query,
        description=CANCEL_DESCRIPTION,
        arguments=with_names(EndingArguments, names),
        examples=(
            ToolExample(question="cancel the query of pid 4711", arguments={"pid": 4711}),
            ToolExample(question="please stop what backend 812 executes", arguments={"pid": 812}),
            ToolExample(question="取消进程 4711 的查询", arguments={"pid": 4711}),
        ),
        effect=Effect.WRITE,
    )
    registry.register(
        terminate_session,
        description=TERMINATE_DESCRIPTION,
        arguments=with_names(EndingArguments, names),
        examples=(
            ToolExample(question="kill session 4711", arguments={"pid": 4711}),
            ToolExample(question="terminate backend 812", arguments={"pid": 812}),
            ToolExample(question="终止会话 4711", arguments={"pid": 4711}),
        ),
        effect=Effect.WRITE,
    )


def _running_examples(names: Sequence[str]) -> tuple[ToolExample, ...]:
    first = names[0] if names else "shop"
    return (
        ToolExample(question="what is running right now?", arguments={}),
        ToolExample(
            question=f"which queries are running longer than 10 seconds on {first} at the moment?",
            arguments={"min_seconds": 10, "target": first},
        ),
        ToolExample(question="is anybody idle in transaction?", arguments={}),
        ToolExample(question="show active sessions, the processlist", arguments={}),
        ToolExample(question="现在有哪些会话正在运行？", arguments={}),
        ToolExample(question="正在运行超过10秒的查询", arguments={"min_seconds": 10}),
    )


def _blocking_examples(names: Sequence[str]) -> tuple[ToolExample, ...]:
    first = names[0] if names else "shop"
    return (
        ToolExample(question="who is blocking whom?", arguments={}),
        ToolExample(question="are there any blocked queries?", arguments={}),
        ToolExample(question=f"which session holds the locks on {first}?", arguments={"target": first}),
        ToolExample(question="lock waits of more than 30 seconds, with the root blocker", arguments={"min_wait_s": 30}),
        ToolExample(question="谁阻塞了谁？有锁等待吗？", arguments={}),
    )


def _preflight_examples(names: Sequence[str]) -> tuple[ToolExample, ...]:
    first = names[0] if names else "shop"
    return (
        ToolExample(question="run a preflight check", arguments={}),
        ToolExample(question=f"which permissions are missing on {first}?", arguments={"target": first}),
        ToolExample(question="is monitoring set up completely here, is the extension installed?", arguments={}),
        ToolExample(question="检查一下权限和配置", arguments={}),
    )
