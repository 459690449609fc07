"""Twenty queries: those that an index helps and those that none does, each on data of its own.

Sizes are small enough to be fast and large enough that a missing index shows. Data is a function of the row's
number, so every server has the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One query.

    Args:
        name: of the case.
        sql: the query.
        keys: what the DDL of the advised index has to hold; empty: none may be advised.
        plausible: where none may be advised, an index that one might think of, to see that it is no good.
    """

    name: str
    sql: str
    keys: str = ""
    plausible: str = ""

    @property
    def helped(self) -> bool:
        """Whether an index helps."""
        return bool(self.keys)


SCHEMA = """
create table orders (id bigint primary key, customer_id int not null, status varchar(10) not null, total numeric(10, 2),
                     email text, created_at timestamp not null, shipped_at timestamp, note text, data jsonb,
                     flagged boolean not null, region int not null);
insert into orders select g, (g * 7919) % 3000,
  case when g % 500 = 0 then 'lost' when g % 4 = 0 then 'sent' else 'open' end,
  (g * 31) % 10000 / 100.0, 'User' || ((g * 104729) % 60000) || '@example.org',
  timestamp '2026-01-01' + g * interval '1 minute',
  case when g % 300 = 0 then null else timestamp '2026-01-02' + g * interval '1 minute' end,
  md5(g::text) || ' filler filler filler filler filler', jsonb_build_object('city', 'c' || (g * 13) % 900, 'n', g),
  g % 700 = 0, g % 8
  from generate_series(1::bigint, 60000) as g;
create table customers (id int primary key, name text not null, country int not null, vip boolean not null);
insert into customers select g, 'name ' || (g * 7919) % 3000, g % 40, g % 5 = 0 from generate_series(0, 2999) as g;
create table items (id bigint, order_id bigint not null, product_id int not null, amount int not null, filler text);
insert into items select g, (g * 48271) % 60000 + 1, (g * 7919) % 500, g % 9, repeat('x', 60)
  from generate_series(1::bigint, 90000) as g;
create index items_product on items (product_id);
create table tiny (id int, name text);
insert into tiny select g, 'name ' || g from generate_series(1, 60) as g;
create table events (id bigint, tenant int not null, kind int not null, at timestamp not null, payload text);
insert into events select g, (g * 7919) % 400, g % 25,
  timestamp '2026-01-01' + ((g * 48271) % 80000) * interval '1 second',
  repeat('p', 80) from generate_series(1::bigint, 80000) as g;
create index events_tenant_kind on events (tenant, kind);
"""

ANALYZE = ("orders", "customers", "items", "tiny", "events")

CASES = (
    # -- an index helps
    Case(name="equality", sql="select * from orders where customer_id = 42", keys="customer_id"),
    Case(name="rare_value", sql="select id, total from orders where status = 'lost'", keys="status"),
    Case(
        name="equality_and_range",
        sql="select * from orders where region = 3 and created_at > timestamp '2026-02-11'",
        keys="created_at",
    ),
    Case(name="range", sql="select id, note from orders where total between 17.00 and 17.10", keys="total"),
    Case(name="function", sql="select id from orders where lower(email) = 'user4711@example.org'", keys="lower(email)"),
    Case(name="json_field", sql="select id from orders where data ->> 'city' = 'c17'", keys="data ->> 'city'"),
    Case(name="missing_value", sql="select id from orders where shipped_at is null and region = 4", keys="shipped_at"),
    Case(
        name="flag", sql="select id, note from orders where flagged order by created_at desc limit 20", keys="flagged"
    ),
    Case(name="newest", sql="select * from events order by at desc limit 10", keys="at"),
    Case(
        name="newest_of_one",
        sql="select * from events where tenant = 7 order by at desc limit 5",
        keys="tenant, at",
    ),
    Case(
        name="join",
        sql="select o.id, i.amount from orders o join items i on i.order_id = o.id where o.id between 1000 and 1010",
        keys="order_id",
    ),
    Case(
        name="among",
        sql="select id, kind from events where id in (5, 500, 50000)",
        keys="id",
    ),
    Case(name="one_of_two", sql="select id from items where id = 777 or order_id = 4242", keys="order_id"),
    # -- none does
    Case(name="primary_key", sql="select * from orders where id = 4711"),
    Case(name="already_indexed", sql="select * from events where tenant = 7 and kind = 3"),
    Case(name="tiny_table", sql="select * from tiny where name = 'name 7'", plausible="tiny (name)"),
    Case(
        name="most_rows",
        sql="select id, note from orders where status <> 'lost' and region >= 1",
        plausible="orders (region, status)",
    ),
    Case(name="half_of_all", sql="select * from items where amount > 4", plausible="items (amount)"),
    Case(name="wildcard_first", sql="select id, note from orders where note like '%abc'", plausible="orders (note)"),
    Case(name="everything", sql="select sum(amount), max(filler) from items", plausible="items (amount)"),
)
