"""The tools of this folder, as a model sees them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from agent_core.context import Clock
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.tools.database_health.answer import DatabaseHealth, IndexHealth, TableHealth
from bot.tools.database_health.checks import CheckName
from bot.tools.database_health.db_health import read_db_health
from bot.tools.database_health.index_health import read_index_health
from bot.tools.database_health.table_health import read_table_health
from bot.tools.target_argument import TARGET, with_names
from bot.tools.targets import Targets

_MOST_TABLES = 100
_LARGEST_MB = 1_000_000

INDEX_HEALTH_DESCRIPTION = """\
Find indexes that cost writes and space for nothing, on a live Postgres, MySQL or MariaDB database: unused, duplicate,
prefix-redundant (another index begins with the same columns) and invalid ones. Use it for "unused indexes", "duplicate
index", "redundant indexes", "which index can be dropped", "多余索引", "未使用的索引", "没用的索引", "重复索引". It
does not look for missing indexes.

`kind` says what is wrong, `finding` the evidence, `covered_by` the index that does the work. `suggestion` is a line
for a person to run after reading `notes`; nobody runs it here, and it is null where the evidence is too thin.
`counters_since` says since when scans were counted: with young counters nothing counts as unused yet; tell the person.

Example: {"min_size_mb": 1}"""

TABLE_HEALTH_DESCRIPTION = """\
List the largest tables of a live Postgres, MySQL or MariaDB database with their size, live and dead rows, bloat, last
vacuum and analyze, transaction age, and what is wrong with them. Use it for "table size", "largest tables", "bloat",
"dead tuples", "vacuum", "fragmentation", "表膨胀", "表大小", "死元组", "碎片".

`findings` is empty for a healthy table, else it says what is wrong with the evidence, for example many sequential scans
of a large table (an index may be missing). `bloat_method` says how bloat was found out: pgstattuple_approx (measured),
statistics (estimated), data_free (MySQL), none (not known: `warnings` has the line that would help).

Example: {"top": 20}"""

DB_HEALTH_DESCRIPTION = """\
Check the health of a live Postgres, MySQL or MariaDB server in one call: connections against the limit, cache hit
ratio, checkpoints, WAL archiving, replication lag, replication slots, long transactions, sessions idle in transaction,
sequences or AUTO_INCREMENT near their end, invalid and unlogged objects, transaction id wraparound, InnoDB history. Use
it for "health check", "is the database healthy", "too many connections", "replication lag", "idle in transaction",
"sequence exhaustion", "健康检查", "连接数", "复制延迟", "主从延迟", "长事务", "序列耗尽".

Each row has a `status` (ok, warn, critical, unknown), the `value`, the `bound` it was compared with, the `evidence`,
and `advice`. unknown means that it could not look: `grant` is the exact line that would let it. `items` name the single
sessions, slots or sequences. Never call an unknown check healthy.

Example: {"checks": ["connections", "replication"]}"""


class IndexHealthArguments(BaseModel):
    """Arguments of ``index_health``."""

    target: Annotated[str | None, Field(description=TARGET)] = None
    min_size_mb: Annotated[
        float,
        Field(
            ge=0,
            le=_LARGEST_MB,
            allow_inf_nan=False,
            description="Leave out indexes smaller than this many MiB (invalid ones are always listed).",
        ),
    ] = 1.0


class TableHealthArguments(BaseModel):
    """Arguments of ``table_health``."""

    target: Annotated[str | None, Field(description=TARGET)] = None
    top: Annotated[int, Field(ge=1, le=_MOST_TABLES, description="How many of the largest tables to list.")] = 20


class DatabaseHealthArguments(BaseModel):
    """Arguments of ``db_health``."""

    checks: Annotated[
        list[CheckName] | None, Field(min_length=1, description="Only these checks. Leave it out for all of them.")
    ] = None
    target: Annotated[str | None, Field(description=TARGET)] = None


def register_health_tools(registry: ToolRegistry, targets: Targets, clock: Clock) -> None:
    """Register ``index_health``, ``table_health`` and ``db_health``.

    Args:
        registry: where they go.
        targets: what they may look at; the names become an enum in the schema, other names an error that lists them.
        clock: measures how long a call took.

    Raises:
        ConfigError: the names are taken.
    """

    async def index_health(arguments: IndexHealthArguments) -> IndexHealth:
        return await read_index_health(targets.resolve(arguments.target), clock, min_size_mb=arguments.min_size_mb)

    async def table_health(arguments: TableHealthArguments) -> TableHealth:
        return await read_table_health(targets.resolve(arguments.target), clock, top=arguments.top)

    async def db_health(arguments: DatabaseHealthArguments) -> DatabaseHealth:
        return await read_db_health(targets.resolve(arguments.target), clock, checks=arguments.checks or ())

    names = sorted(targets)
    registry.register(
        index_health,
        description=INDEX_HEALTH_DESCRIPTION,
        arguments=with_names(IndexHealthArguments, names),
        examples=_index_examples(),
    )
    registry.register(
        table_health,
        description=TABLE_HEALTH_DESCRIPTION,
        arguments=with_names(TableHealthArguments, names),
        examples=_table_examples(),
    )
    registry.register(
        db_health,
        description=DB_HEALTH_DESCRIPTION,
        arguments=with_names(DatabaseHealthArguments, names),
        examples=_database_examples(),
    )


def _index_examples() -> tuple[ToolExample, ...]:
    return (
        ToolExample(question="which indexes are unused or duplicate?", arguments={}),
        ToolExample(question="can I drop any redundant indexes?", arguments={}),
        ToolExample(question="list every invalid or useless index, however small", arguments={"min_size_mb": 0}),
        ToolExample(question="哪些索引没有被使用，或者是多余的、可以删除？", arguments={}),
        ToolExample(question="哪些索引没有用、没用到？", arguments={}),
    )


def _table_examples() -> tuple[ToolExample, ...]:
    return (
        ToolExample(question="what are the largest tables and how bloated are they?", arguments={}),
        ToolExample(question="do any tables need a vacuum? how many dead tuples are there?", arguments={}),
        ToolExample(question="sizes of the top 5 tables", arguments={"top": 5}),
        ToolExample(question="哪些表膨胀严重，需要清理死元组？", arguments={}),
    )


def _database_examples() -> tuple[ToolExample, ...]:
    return (
        ToolExample(question="run a health check of the database server", arguments={}),
        ToolExample(
            question="how many connections are open, and are we running out of them?",
            arguments={"checks": ["connections"]},
        ),
        ToolExample(
            question="how far behind is the replica, and do replication slots hold WAL?",
            arguments={"checks": ["replication", "slots"]},
        ),
        ToolExample(
            question="is any session idle in transaction, and which sequences are near their end?",
            arguments={"checks": ["idle_in_transaction", "sequences"]},
        ),
        ToolExample(question="给数据库做一次健康检查", arguments={}),
    )
