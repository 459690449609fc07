"""The demo's shop: a database with a missing index, and an application that suffers from it.

``DemoDatabase`` starts a server of our own, loads ``shop.sql``, and runs a bounded workload as the role
``shop_app``; Hermod gets the address of another role that may only look. The slow statements do real work
(table scans, a sort that spills to disk); how much of it is measured at the start, so that one of them takes
more than a second on a fast machine as well as on a slow one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bot.demo.binaries import PostgresUnavailable
from bot.demo.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

# How long the longest statement should take, and after each slow statement its length is waited this often.
_LONGEST_S = 2.2
_LONG_ENOUGH_S = 1.4
_TRIES = 5
_MOST_CUSTOMERS = 2_000
_REST = 2.0
_FLUSH_SINCE = 150_000
_FAST_PAUSE_S = 0.25
_APP_NAME = "shop"

_ORDERS_OF_CUSTOMER = (
    "select id, placed_at, status, total from orders where customer_id = %s order by placed_at desc limit 20"
)
_LAST_ORDERS = (
    "select c.id, c.name, (select max(o.placed_at) from orders o where o.customer_id = c.id) as last_order "
    "from customers c where c.id between %s and %s order by last_order nulls first"
)
_DEEP_PAGE = (
    "select o.id, o.note, c.email from orders o join customers c on c.id = o.customer_id "
    "order by o.note, c.email limit 50 offset %s"
)
_SALES = (
    "select p.category, date_trunc('month', o.placed_at) as month, sum(i.quantity * i.price) as sales "
    "from orders o join order_items i on i.order_id = o.id join products p on p.id = i.product_id "
    "where o.status <> %s group by p.category, month order by month, p.category"
)
_SEARCH_NOTES = "select id, customer_id, placed_at from orders where note ilike %s order by placed_at desc limit 20"
_PRODUCT = "select name, price from products where id = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFacts:
    """What is true of the demo, for its introduction and for checks.

    Args:
        rows: number of rows by table.
        missing_index: the column whose index is missing, as ``table(column)``.
        longest: the beginning of the statement that takes more than a second.
        customers_per_report: how many customers that statement looks at, as calibrated.
        start_s: seconds from nothing to ready.
    """

    rows: Mapping[str, int]
    missing_index: str
    longest: str
    customers_per_report: int
    start_s: float


class DemoDatabase:
    """The shop with its workload; ``async with DemoDatabase() as demo: demo.url``.

    When the block is entered, every slow statement has run at least once, so that it can be found.

    Args:
        server: the server to use, not started yet; None makes one.
        seed: for the order of what the application asks.
        on_loaded: called with ``url`` when the tables are there and before the application runs, so that a
            first reading of the counters can be taken; from it on every window is exact.
    """

    def __init__(
        self,
        *,
        server: EmbeddedPostgres | None = None,
        seed: int = 1,
        on_loaded: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._on_loaded = on_loaded
        # A small work_mem makes the sort of the deep page spill, as it does in production with more rows.
        self._server = server if server is not None else EmbeddedPostgres(settings={"work_mem": "1MB"})
        self._random = random.Random(seed)  # noqa: S311 (a workload, not a secret)
        self._app_secret = secrets.token_urlsafe(18)
        self._reader_secret = secrets.token_urlsafe(18)
        self._tasks: list[asyncio.Task[None]] = []
        self._facts: DemoFacts | None = None

    @property
    def url(self) -> str:
        """The address for Hermod: role ``hermod``, read-only, with ``pg_monitor``. It holds a password."""
        return self._server.url("shop", user="hermod", password=self._reader_secret)

    @property
    def folder(self) -> Path:
        """Where the server lives while the demo runs; see ``EmbeddedPostgres.folder``."""
        return self._server.folder

    @property
    def facts(self) -> DemoFacts:
        """See ``DemoFacts``; known inside the block."""
        if self._facts is None:
            raise RuntimeError("the demo was not started")
        return self._facts

    async def start(self) -> None:
        """Start the server, load the shop, and run each statement once; cleans up when that fails.

        Raises:
            PostgresUnavailable: no Postgres programs, no psycopg, or the server did not start.
        """
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise PostgresUnavailable("the demo needs psycopg: pip install 'hermod-bot[demo]'") from error
        began = time.monotonic()
        try:
            await self._server.start()
            rows = await self._load()
            if self._on_loaded is not None:
                await self._on_loaded(self.url)
            connection = await self._connect_app()
            customers = await self._calibrate(connection)
            self._tasks.append(asyncio.create_task(self._browse(), name="demo-browse"))
            customers = await self._make_slow(connection, customers)
            for statement, parameters in self._other_statements():
                await connection.execute(statement, parameters)
            self._tasks.append(asyncio.create_task(self._suffer(connection, customers), name="demo-suffer"))
        except BaseException:
            await self.stop()
            raise
        self._facts = DemoFacts(
            rows=rows,
            missing_index="orders(customer_id)",
            longest=_LAST_ORDERS[:34],
            customers_per_report=customers,
            start_s=round(time.monotonic() - began, 2),
        )

    async def stop(self) -> None:
        """End the workload and the server, and remove what they wrote. Safe to call twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- loading -----------------------------------------------------------------------------------

    async def _load(self) -> dict[str, int]:
        from psycopg import AsyncConnection, sql

        roles = sql.SQL(
            "create role shop_app login password {app};"
            "alter role shop_app set statement_timeout = '60s';"
            "create role hermod login password {reader} connection limit 10;"
            "alter role hermod set default_transaction_read_only = on;"
            "grant pg_monitor to hermod"
        ).format(app=sql.Literal(self._app_secret), reader=sql.Literal(self._reader_secret))
        async with await AsyncConnection.connect(self._server.url(), autocommit=True) as admin:
            await admin.execute(roles)
            await admin.execute("create database shop owner shop_app")
        async with await AsyncConnection.connect(self._server.url("shop"), autocommit=True) as admin:
            await admin.execute("create extension pg_stat_statements")
        # The application makes its own tables, in one transaction: then Postgres writes no log for the rows.
        async with await self._connect_app() as owner:
            script = resources.files("bot.demo").joinpath("shop.sql").read_bytes()
            await owner.execute(b"begin;" + script + b"grant select on all tables in schema public to hermod; commit")
            if owner.info.server_version >= _FLUSH_SINCE:
                # What was inserted is counted first, else ANALYZE seems not to have seen it.
                await owner.execute("select pg_stat_force_next_flush()")
            await owner.execute("analyze customers, products, orders, order_items")
            rows: dict[str, int] = {}
            for table in ("customers", "products", "orders", "order_items"):
                cursor = await owner.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table)))
                counted = await cursor.fetchone()
                rows[table] = counted[0] if counted is not None else 0
        async with await AsyncConnection.connect(self._server.url("shop"), autocommit=True) as admin:
            # What follows is the application; how its tables were loaded is not what people ask about.
            await admin.execute("select pg_stat_statements_reset()")
        return rows

    async def _connect_app(self) -> AsyncConnection[TupleRow]:
        from psycopg import AsyncConnection

        return await AsyncConnection.connect(
            self._server.url("shop", user="shop_app", password=self._app_secret),
            autocommit=True,
            application_name=_APP_NAME,
        )

    # -- the application ---------------------------------------------------------------------------

    async def _calibrate(self, connection: AsyncConnection[TupleRow]) -> int:
        """How many table scans fill ``_LONGEST_S`` on this machine, now."""
        fastest = math.inf
        for customer in (17, 4242, 19_001):
            began = time.monotonic()
            await connection.execute(_ORDERS_OF_CUSTOMER, (customer,))
            fastest = min(fastest, time.monotonic() - began)
        return _scale(1, fastest)

    async def _make_slow(self, connection: AsyncConnection[TupleRow], customers: int) -> int:
        """Run the longest statement until its mean is long enough; return how many customers it looks at by then.

        A machine that was busy while it was measured may be idle now.
        """
        spent_s: list[float] = []
        while len(spent_s) < _TRIES:
            spent_s.append(await self._run_longest(connection, customers))
            if sum(spent_s) / len(spent_s) >= _LONG_ENOUGH_S:
                break
            customers = _scale(customers, spent_s[-1])
        return customers

    async def _run_longest(self, connection: AsyncConnection[TupleRow], customers: int) -> float:
        first = self._random.randint(1, 20_000 - customers)
        began = time.monotonic()
        await connection.execute(_LAST_ORDERS, (first, first + customers - 1))
        return time.monotonic() - began

    def _other_statements(self) -> list[tuple[str, tuple[object, ...]]]:
        return [
            (_DEEP_PAGE, (self._random.randint(150_000, 249_000),)),
            (_SALES, ("returned",)),
            (_SEARCH_NOTES, (f"%{self._random.randint(10_000, 99_999)}%",)),
        ]

    async def _suffer(self, connection: AsyncConnection[TupleRow], customers: int) -> None:
        """The slow statements, one at a time, with rests that leave most of the processor to others."""
        import psycopg

        async with connection:
            with contextlib.suppress(psycopg.OperationalError):  # the server was stopped under us
                while True:
                    took_s = await self._run_longest(connection, customers)
                    customers = _scale(customers, took_s)
                    await asyncio.sleep(max(0.5, _REST * took_s))
                    for statement, parameters in self._other_statements():
                        began = time.monotonic()
                        await connection.execute(statement, parameters)
                        await asyncio.sleep(max(0.5, _REST * (time.monotonic() - began)))

    async def _browse(self) -> None:
        """What customers do: pages that need one order list (a scan each) and many quick look-ups."""
        import psycopg

        async with await self._connect_app() as connection:
            with contextlib.suppress(psycopg.OperationalError):  # the server was stopped under us
                for page in range(1_000_000):
                    await connection.execute(_PRODUCT, (self._random.randint(1, 1000),))
                    if page % 4 == 0:
                        await connection.execute(_ORDERS_OF_CUSTOMER, (self._random.randint(1, 20_000),))
                    await asyncio.sleep(_FAST_PAUSE_S)


def _scale(customers: int, took_s: float) -> int:
    """How many customers take ``_LONGEST_S`` when so many took so long."""
    return max(8, min(_MOST_CUSTOMERS, math.ceil(customers * _LONGEST_S / max(took_s, 0.001))))
