"""What the names of a statement mean on the server, and whether all of it only reads.

A name is judged by everything that it could mean: each overload of a function, each operator of that name, what the
aggregates, casts and checks behind them call, and the definitions of the views down to their tables. The queries run
with ``pg_catalog`` first in the search path, so that nothing of the database takes the place of what they use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.policy_postgres import inspect_expression, inspect_view, refuse_setting
from bot.tools.readonly_sql.policy_postgres_names import (
    SAFE_VOLATILE,
    SAFE_VOLATILE_OF_EXTENSIONS,
    SECRET_SETTINGS,
)
from bot.tools.readonly_sql.policy_postgres_uses import ANY_SETTING, Name, Uses, merge_uses
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly, Row

MOST_VIEWS = 100
"""Views behind views that are looked through for one statement."""

# Objects with smaller numbers were made by initdb (FirstNormalObjectId in the server's access/transam.h).
_FIRST_OF_USERS = 16_384

_IN_SCHEMA = "case when a.schema = '' then n.nspname = any (current_schemas(true)) else n.nspname::text = a.schema end"

# A table or type is the first of its name in the search path; a function or operator may be any of them.
_FIRST_TABLE = "case when a.schema = '' then pg_catalog.pg_table_is_visible(c.oid) else n.nspname::text = a.schema end"
_FIRST_TYPE = "case when a.schema = '' then pg_catalog.pg_type_is_visible(y.oid) else n.nspname::text = a.schema end"

_EXTENSION = """(select e.extname::text from pg_catalog.pg_depend d
    join pg_catalog.pg_extension e on e.oid = d.refobjid
    where d.classid = 'pg_catalog.{catalog}'::regclass and d.objid = {oid} and d.deptype = 'e'::"char"
      and d.refclassid = 'pg_catalog.pg_extension'::regclass limit 1)"""

# An aggregate itself is always immutable; what it calls for every row need not be.
_FUNCTIONS = f"""select {OWN_MARK} a.schema as asked, p.proname::text as name,
    p.oid < {_FIRST_OF_USERS}::oid as builtin,
    {_EXTENSION.format(catalog="pg_proc", oid="p.oid")} as extension,
    p.provolatile = 'v'::"char" or coalesce(g.volatile, false) as volatile,
    p.prosecdef or coalesce(g.definer, false) as definer,
    case when p.oid >= {_FIRST_OF_USERS}::oid then pg_catalog.pg_get_expr(p.proargdefaults, 0::oid) end as defaults,
    array(select array[s.nspname::text, y.typname::text] from pg_catalog.pg_type y
          join pg_catalog.pg_namespace s on s.oid = y.typnamespace
          where y.oid >= {_FIRST_OF_USERS}::oid and y.oid = any (p.proargtypes::oid[] || p.prorettype)) as own_types,
    exists (select from unnest(p.proargtypes) as t (oid) join pg_catalog.pg_type y on y.oid = t.oid
            left join pg_catalog.pg_type b on b.oid = y.typbasetype
            where y.typtype in ('c'::"char", 'p'::"char") or b.typtype = 'c'::"char") as takes_rows
  from (select * from unnest(%s::text[], %s::text[])) as a (schema, name)
  join pg_catalog.pg_proc p on p.proname::text = a.name
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace and {_IN_SCHEMA}
  left join lateral (
    select bool_or(s.provolatile = 'v'::"char") as volatile, bool_or(s.prosecdef) as definer
    from pg_catalog.pg_aggregate x join pg_catalog.pg_proc s on s.oid in (x.aggtransfn::oid, x.aggfinalfn::oid,
      x.aggcombinefn::oid, x.aggmtransfn::oid, x.aggminvtransfn::oid, x.aggmfinalfn::oid)
    where x.aggfnoid::oid = p.oid and s.oid >= {_FIRST_OF_USERS}::oid) g on true"""

_OPERATORS = f"""select {OWN_MARK} o.oprname::text as name
  from (select * from unnest(%s::text[], %s::text[])) as a (schema, name)
  join pg_catalog.pg_operator o on o.oprname::text = a.name
  join pg_catalog.pg_namespace n on n.oid = o.oprnamespace and {_IN_SCHEMA}
  join pg_catalog.pg_proc p on p.oid = o.oprcode::oid
  where (p.provolatile = 'v'::"char" or p.prosecdef) and o.oid >= {_FIRST_OF_USERS}::oid
    and {_EXTENSION.format(catalog="pg_operator", oid="o.oid")} is null"""

_VIEWS = f"""with recursive {OWN_MARK} found (schema, name, oid, relkind) as (
    select a.schema, a.name, c.oid, c.relkind from (select * from unnest(%s::text[], %s::text[])) as a (schema, name)
    join pg_catalog.pg_class c on c.relname::text = a.name
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace and {_FIRST_TABLE}),
  v (oid) as (
    select f.oid from found f where f.relkind = 'v'::"char" and f.oid >= {_FIRST_OF_USERS}::oid
  union
    select c.oid from v
    join pg_catalog.pg_rewrite r on r.ev_class = v.oid
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = r.oid
      and d.refclassid = 'pg_catalog.pg_class'::regclass
    join pg_catalog.pg_class c on c.oid = d.refobjid
    where c.relkind = 'v'::"char" and c.oid >= {_FIRST_OF_USERS}::oid)
  select f.schema, f.name, null as definition from found f
  union all
  (select '', v.oid::regclass::text, pg_catalog.pg_get_viewdef(v.oid) from v
   where {_EXTENSION.format(catalog="pg_class", oid="v.oid")} is null limit {MOST_VIEWS + 1})"""

# A cast to a domain runs its checks, one to a row those of its columns; a cast with a function runs that.
_TYPES = f"""with recursive {OWN_MARK} t (oid) as (
    select y.oid from (select * from unnest(%s::text[], %s::text[])) as a (schema, name)
    join pg_catalog.pg_type y on y.typname::text = a.name
    join pg_catalog.pg_namespace n on n.oid = y.typnamespace and {_FIRST_TYPE}
  union
    select x.oid from t join pg_catalog.pg_type y on y.oid = t.oid
    cross join lateral (
      select y.typbasetype as oid union all select y.typelem
      union all select l.atttypid from pg_catalog.pg_attribute l
        where l.attrelid = y.typrelid and l.attnum > 0 and not l.attisdropped
      union all select g.rngsubtype from pg_catalog.pg_range g where g.rngtypid = y.oid) x
    where x.oid >= {_FIRST_OF_USERS}::oid)
  select 'known' as kind, y.typname::text as name, null as definition, false as builtin
    from t join pg_catalog.pg_type y on y.oid = t.oid
  union all
  select 'check', t.oid::regtype::text, pg_catalog.pg_get_expr(k.conbin, 0::oid), false
    from t join pg_catalog.pg_constraint k on k.contypid = t.oid where k.conbin is not null
  union all
  select 'cast', y.typname::text, p.proname::text, y.oid < {_FIRST_OF_USERS}::oid
    from t join pg_catalog.pg_type y on y.oid = t.oid
    join pg_catalog.pg_cast c on c.castsource = t.oid or c.casttarget = t.oid
    join pg_catalog.pg_proc p on p.oid = c.castfunc
    where (p.provolatile = 'v'::"char" or p.prosecdef) and p.oid >= {_FIRST_OF_USERS}::oid
      and {_EXTENSION.format(catalog="pg_proc", oid="p.oid")} is null"""

# A program's own settings (app.jwt_secret) are not in this view.
_SETTINGS = f"""select {OWN_MARK} s.name::text as name from pg_catalog.pg_settings s
  where s.name::text = any (%s::text[]) and s.setting is not null and s.setting::text not in ('', '(disabled)')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    name: str
    builtin: bool
    extension: str | None
    volatile: bool
    definer: bool
    takes_rows: bool
    uses: Uses

    @classmethod
    def of(cls, row: Row) -> _Function:
        extension, defaults, own_types = row["extension"], row["defaults"], row["own_types"]
        types = own_types if isinstance(own_types, list) else []
        uses = Uses(types=frozenset((str(schema), str(name)) for schema, name in types))
        if defaults is not None:
            uses = merge_uses(uses, inspect_expression(str(defaults), f"of an argument of {row['name']}()"))
        return cls(
            name=str(row["name"]),
            builtin=row["builtin"] is True,
            extension=None if extension is None else str(extension),
            volatile=row["volatile"] is not False,
            definer=row["definer"] is not False,
            takes_rows=row["takes_rows"] is not False,
            uses=uses,
        )

    def check(self) -> None:
        """Raise ``ToolFailed`` unless calling it only reads."""
        if self.builtin:
            safe = not self.volatile or self.name in SAFE_VOLATILE
        elif self.extension is not None:
            safe = not self.volatile or self.name in SAFE_VOLATILE_OF_EXTENSIONS
        elif self.definer:
            raise ToolFailed(
                f"{self.name}() runs with the rights of its owner (SECURITY DEFINER), not with the role's",
                code="not_read_only",
                fix="query its tables directly",
            )
        else:
            safe = not self.volatile
        if not safe:
            raise ToolFailed(
                f"{self.name}() is volatile: it may change, lock, wait for or reach something beyond this query",
                code="not_read_only",
                fix="leave it out, or declare it STABLE where it only reads and is the database's own",
            )


async def check_uses(db: ReadOnly, uses: Uses) -> None:
    """Look up what a statement uses, and refuse it where something of it does more than to read.

    Args:
        db: open, with ``pg_catalog`` first in the search path that the statement will have.
        uses: of the statement.

    Raises:
        ToolFailed: ``not_read_only``, ``not_allowed`` or ``parse_failed`` with the name, and what ``fetch`` raises.
    """
    uses = merge_uses(uses, *await _uses_of_views(db, uses))
    known: set[str] = set()
    types: frozenset[Name] = frozenset()
    functions: frozenset[Name] = frozenset()
    # What a type checks, and what a function's arguments are when they are left out, may name further ones.
    while (new := uses.types | uses.functions) - types or _called(uses) - functions:
        casts = {name for _, name in uses.casts | uses.functions}
        found = await _look_at_types(db, new - types, casts)
        types |= new
        known.update(found)
        called = _called(uses)
        behind = await _look_at_functions(db, uses, called - functions, known)
        functions |= called
        uses = merge_uses(uses, *found.values(), *behind)
    await _check_operators(db, uses.operators)
    if uses.settings:
        await check_settings(db, uses.settings)


def _called(uses: Uses) -> frozenset[Name]:
    """Every name that may be a function's."""
    return uses.functions | {("", name) for name in uses.fields | uses.members}


async def check_settings(db: ReadOnly, names: Iterable[str]) -> None:
    """Refuse settings that hold secrets: by their names, and all together only where one of them has a value.

    Raises:
        ToolFailed: ``not_allowed``.
    """
    asked = frozenset(names)
    for name in sorted(asked):
        if refuse_setting(name):
            raise ToolFailed(f"setting {name} may hold a secret", code="not_allowed", fix="ask for another setting")
    if ANY_SETTING not in asked:
        return
    rows = await db.fetch(_SETTINGS, (sorted(SECRET_SETTINGS),))
    if rows:
        found = ", ".join(sorted(str(row["name"]) for row in rows))
        raise ToolFailed(
            f"all settings together would show those that may hold a secret here ({found})",
            code="not_allowed",
            fix="use SHOW, or current_setting('...') with the name written out",
        )


async def _uses_of_views(db: ReadOnly, uses: Uses) -> list[Uses]:
    """Return what the views among the relations use, down to their tables; every relation has to be known."""
    if not uses.relations:
        return []
    rows = await db.fetch(_VIEWS, _columns(uses.relations))
    views = [row for row in rows if row["definition"] is not None]
    if len(views) > MOST_VIEWS:
        raise ToolFailed(
            f"more than {MOST_VIEWS} views stand behind the statement; not all of them can be checked",
            code="not_read_only",
            fix="query the tables directly",
        )
    found = {(str(row["schema"]), str(row["name"])) for row in rows if row["definition"] is None}
    for schema, name in sorted(uses.relations - found):
        if schema or name not in uses.tables:
            raise _not_found("table or view", schema, name)
    return [inspect_view(str(row["definition"]), str(row["name"])) for row in views]


async def _look_at_types(db: ReadOnly, asked: frozenset[Name], casts: Collection[str]) -> Mapping[str, Uses]:
    """Return the types that the server knows, by name, with what their checks use; a function may be called as one."""
    known: dict[str, Uses] = {}
    for row in await db.fetch(_TYPES, _columns(asked)):
        name, definition = str(row["name"]), str(row["definition"])
        match row["kind"]:
            case "known":
                known.setdefault(name, Uses())
            case "check":
                known[name] = merge_uses(inspect_expression(definition, name), known.get(name, Uses()))
            case _ if row["builtin"] is False or name in casts:
                raise ToolFailed(
                    f"the cast of type {name} calls {definition}(), which does more than to read",
                    code="not_read_only",
                    fix="leave the cast out",
                )
    return known


async def _look_at_functions(db: ReadOnly, uses: Uses, asked: frozenset[Name], types: Collection[str]) -> list[Uses]:
    """Check the functions, and return what else their calls use: defaults of arguments, and checks of their types."""
    found: set[Name] = set()
    behind: list[Uses] = []
    for row in await db.fetch(_FUNCTIONS, _columns(asked)):
        function = _Function.of(row)
        written = (str(row["asked"]), function.name)
        found.add(written)
        called = written in uses.functions or (not written[0] and function.name in uses.members)
        if called or function.takes_rows:
            function.check()
            behind.append(function.uses)
    for schema, name in sorted((uses.functions & asked) - found):
        if name not in types:
            raise _not_found("function", schema, f"{name}()")
    return behind


def _not_found(kind: str, schema: str, name: str) -> ToolFailed:
    return ToolFailed(
        f"there is no {kind} {schema}.{name} here" if schema else f"there is no {kind} {name} here",
        code="parse_failed",
        fix="check its name, and write its schema in front of it",
    )


async def _check_operators(db: ReadOnly, operators: frozenset[Name]) -> None:
    for row in await db.fetch(_OPERATORS, _columns(operators)):
        raise ToolFailed(
            f"this database has an operator {row['name']} of its own that does more than to read",
            code="not_read_only",
            fix="the database's owner declares its function STABLE, or moves it out of the search path",
        )


def _columns(names: Iterable[Name]) -> tuple[list[str], list[str]]:
    ordered = sorted(names)
    return [schema for schema, _ in ordered], [name for _, name in ordered]
