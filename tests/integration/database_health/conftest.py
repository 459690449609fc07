"""The servers, a healthy database on them, and waiting for what a server does in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import LiteralString

from agent_core.context import SystemClock
from bot.tools.targets import Target
from tests.servers.postgres import Lab, any_postgres, postgres

__all__ = ["any_postgres", "postgres"]

CLOCK = SystemClock()

HEALTHY: LiteralString = """
create table customers (id bigint generated always as identity primary key, email text not null unique, town text);
insert into customers (email, town)
  select 'p' || g || '@example.org', 'town ' || g % 50 from generate_series(1, 40000) g;
create index customers_town on customers (town);
create index customers_lower_town on customers (lower(town));
create index customers_town_pattern on customers (town text_pattern_ops);
create index customers_some on customers (town) where id > 39000;
create table orders (id serial primary key, customer_id bigint not null references customers, total numeric(10, 2),
  note text);
insert into orders (customer_id, total, note) select 1 + g % 40000, g, repeat('n', 40) from generate_series(1, 60000) g;
create index orders_customer on orders (customer_id) include (total);
create table events (id bigint not null, day int not null, primary key (id, day)) partition by range (day);
create table events_1 partition of events for values from (0) to (100);
create table events_2 partition of events for values from (100) to (200);
insert into events select g, g % 200 from generate_series(1, 60000) g;
create index events_day on events (day);
create materialized view towns as select town, count(*) as people from customers group by town;
create unique index towns_town on towns (town);
"""

_LOOKUPS: tuple[tuple[LiteralString, LiteralString], ...] = (
    ("drop index customers_town_pattern, customers_some", "select * from customers where town = 'town 7'"),
    ("drop index customers_town, customers_some", "select * from customers where town like 'town 7%'"),
    (
        "drop index customers_town, customers_town_pattern",
        "select * from customers where town = 'town 7' and id > 39500",
    ),
    ("select 1", "select * from customers where lower(town) = 'town 7'"),
    ("select 1", "select sum(total) from orders where customer_id = 17"),
    ("select 1", "select count(*) from events where day = 17"),
    ("select 1", "select count(*) from events where day = 117"),
)
"""What takes the indexes away that the planner might prefer, and then the statement that needs one more of them."""

_UNCOUNTED: LiteralString = """
select count(*) from pg_stat_user_indexes s join pg_index i using (indexrelid)
where s.idx_scan = 0 and not i.indisunique"""


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 30.0) -> None:
    """Wait for something that the server does in its own time."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 (nothing on the server tells us)
            await asyncio.sleep(0.05)


async def make_healthy(lab: Lab) -> str:
    """Make a database with tables as applications have them, all indexes in use, vacuumed and analyzed."""
    database = await lab.create_database()
    async with lab.admin(database) as admin:
        await admin.execute(HEALTHY)
        # Else what was inserted may be counted after ANALYZE, as changes that it has not seen.
        await admin.execute("select pg_stat_force_next_flush()")
        await admin.execute("vacuum (analyze)")
        await admin.execute("set enable_seqscan = off")
        for first, lookup in _LOOKUPS:
            await admin.execute("begin")
            await admin.execute(first)
            await admin.execute(lookup)
            await admin.execute("rollback")  # the indexes are back, the scan stays counted

    async def all_counted() -> bool:
        async with lab.admin(database) as admin:
            counted = await admin.execute(_UNCOUNTED)
            return (await counted.fetchone()) == (0,)

    await until(all_counted)
    return database


def target_of(lab: Lab, database: str, role: str) -> Target:
    """The only target of a role made in the lab."""
    return lab.targets(database, role).resolve(None)
