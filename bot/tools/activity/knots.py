"""From sessions and their locks to the rows of a lock tree, for any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bot.tools.activity.answer import LockedSession
from bot.tools.activity.locks import Lock
from bot.tools.activity.tree import Forest, plant
from bot.tools.activity.wording import MOST_ROWS, fit_name, fit_queries, say_count, say_seconds
from bot.tools.envelope import LeftOut

DEEPEST = 30
"""Levels of a tree that are shown."""

_MOST_SAID = 3
_MOST_LOCKS = 3
_MOST_OTHERS = 5
NOBODY_WAITS = "No session waits for a lock that another one holds."


@dataclass(frozen=True, slots=True, kw_only=True)
class Knot:
    """Somebody in a lock tree, whatever the engine.

    Args:
        pid: as people see it.
        blockers: keys of the knots that it waits for.
        wait_s: how long it has waited; None for who waits for nobody.
        locks: what it holds and wants.
        row_of: the table of the row that it waits for, where the wanted lock does not name it.
        state: the server's word.
        doing: the rest of a sentence that begins with ``name``.
        name: how to call it; empty for its number.
        query: what it executes or executed last, as the server has it.
        xact_s: since its transaction began.
        note: what else to know.
        user, db, app, backend_start, query_id: as in ``LockedSession``.
    """

    pid: int
    blockers: frozenset[int] = frozenset()
    wait_s: float | None = None
    locks: tuple[Lock, ...] = ()
    row_of: str | None = None
    state: str
    doing: str
    name: str = ""
    query: str = ""
    xact_s: float | None = None
    note: str | None = None
    user: str = ""
    db: str = ""
    app: str = ""
    backend_start: str | None = None
    query_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """The rows of the answer, and what was counted over all of them."""

    rows: tuple[LockedSession, ...]
    summary: str
    waiting: int
    left_out: LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plot:
    """What the rows are made from."""

    knots: Mapping[int, Knot]
    forest: Forest
    wanted_of: Mapping[int, frozenset[str]]
    texts: Mapping[int, str]


def lay_out(knots: Mapping[int, Knot], *, min_wait_s: float, redact: Callable[[str], str]) -> Trees:
    """Build the rows, the longest trees cut to what is readable, and the sentence about the roots.

    Args:
        knots: everybody, by key.
        min_wait_s: leave out who has waited for less, unless somebody behind has waited longer.
        redact: the dialect's redactor.
    """
    forest = plant(
        {key: knot.blockers for key, knot in knots.items() if knot.blockers},
        {key: knot.wait_s for key, knot in knots.items()},
        _holders_of(knots),
    )
    kept = _keep(forest, knots, min_wait_s)
    roots = [root for root in forest.roots if any(child in kept for child in _under(forest, root))]
    everyone = [key for root in roots for key in _walk_down(forest, root, kept, DEEPEST)]
    shown = everyone[:MOST_ROWS]
    total = sum(1 for root in roots for _ in _walk_down(forest, root, kept, None))
    texts, left_out = fit_queries([knots[key].query for key in shown], redact, rows_left_out=total - len(shown))
    plot = _Plot(knots=knots, forest=forest, wanted_of=_wanted_of(knots), texts=dict(zip(shown, texts, strict=True)))
    waiting = sum(bool(knots[key].blockers) for key in kept)
    return Trees(
        rows=tuple(_row(plot, key, kept) for key in roots if key in plot.texts),
        summary=_summarise(plot, roots, kept),
        waiting=waiting,
        left_out=left_out,
    )


def _keep(forest: Forest, knots: Mapping[int, Knot], min_wait_s: float) -> frozenset[int]:
    """Who has waited long enough, and everybody between them and their roots."""
    kept: set[int] = set()
    parents = {child: parent for parent, children in forest.children.items() for child in children}
    for key, knot in knots.items():
        if not knot.blockers or (knot.wait_s or 0.0) < min_wait_s:
            continue
        step: int | None = key
        while step is not None and step not in kept:
            kept.add(step)
            step = parents.get(step)
    return frozenset(kept)


def _under(forest: Forest, root: int) -> tuple[int, ...]:
    """Everybody who waits for a root directly, in the tree or beside it."""
    beside = tuple(key for key, others in forest.others.items() if root in others)
    return forest.children[root] + beside


def _walk_down(forest: Forest, root: int, kept: frozenset[int], deepest: int | None) -> Iterator[int]:
    """Yield a tree, level by level, so that what does not fit is what is farthest from the root."""
    level, depth = [root], 0
    while level and (deepest is None or depth <= deepest):
        yield from level
        level, depth = [child for key in level for child in forest.children[key] if child in kept], depth + 1


def _wanted_of(knots: Mapping[int, Knot]) -> dict[int, frozenset[str]]:
    """By blocker, the things that those who wait for it want."""
    wanted: dict[int, set[str]] = {}
    for knot in knots.values():
        targets = {lock.target for lock in knot.locks if not lock.granted}
        for blocker in knot.blockers:
            wanted.setdefault(blocker, set()).update(targets)
    return {key: frozenset(targets) for key, targets in wanted.items()}


def _holders_of(knots: Mapping[int, Knot]) -> dict[int, frozenset[int]]:
    """By waiter, those of its blockers that hold what it wants; the others only stand in front of it."""
    held = {key: {lock.target for lock in knot.locks if lock.granted} for key, knot in knots.items()}
    found: dict[int, frozenset[int]] = {}
    for key, knot in knots.items():
        targets = {lock.target for lock in knot.locks if not lock.granted}
        found[key] = frozenset(b for b in knot.blockers if b in held and not targets.isdisjoint(held[b]))
    return found


def _row(plot: _Plot, key: int, kept: frozenset[int]) -> LockedSession:
    knot, forest = plot.knots[key], plot.forest
    children = tuple(_row(plot, c, kept) for c in forest.children[key] if c in kept and c in plot.texts)
    parented = any(key in found for found in forest.children.values())
    return LockedSession(
        role="waiter" if parented else "root",
        pid=knot.pid,
        wait_s=knot.wait_s,
        held_lock=_held(plot, key),
        wanted_lock=_wanted(knot),
        relation=_relation(plot, key),
        state=knot.state,
        query=plot.texts[key],
        xact_age_s=knot.xact_s,
        waiters=forest.behind[key],
        note=_note(plot, key),
        also_blocked_by=tuple(plot.knots[other].pid for other in forest.others[key][:_MOST_OTHERS]),
        user=fit_name(knot.user),
        db=fit_name(knot.db),
        app=fit_name(knot.app),
        backend_start=knot.backend_start,
        query_id=knot.query_id,
        children=children,
    )


def _wanted(knot: Knot) -> str | None:
    wants = [lock for lock in knot.locks if not lock.granted] if knot.blockers else []
    return _say([f"{lock.mode} on {lock.thing}{_of_row(lock, knot)}" for lock in wants])


def _of_row(lock: Lock, knot: Knot) -> str:
    return f" (a row of {knot.row_of})" if lock.kind == "transactionid" and knot.row_of else ""


def _held(plot: _Plot, key: int) -> str | None:
    """The locks that stand in the others' way: held ones, or else the place in the queue."""
    targets = plot.wanted_of.get(key, frozenset())
    locks = [lock for lock in plot.knots[key].locks if lock.target in targets]
    held = [f"{lock.mode} on {lock.thing}{_of_rows(plot, key, lock)}" for lock in locks if lock.granted]
    queued = [f"none yet; in front in the queue for {lock.mode} on {lock.thing}" for lock in locks if not lock.granted]
    return _say(held or queued)


def _of_rows(plot: _Plot, key: int, lock: Lock) -> str:
    """For a transaction that others wait for: whose rows it is about, as far as they tell."""
    if lock.kind != "transactionid":
        return ""
    waiters = (plot.knots[waiter] for waiter in _under(plot.forest, key))
    tables = sorted({knot.row_of for knot in waiters if knot.row_of})
    return f" (rows of {', '.join(tables[:_MOST_LOCKS])})" if tables else ""


def _say(parts: list[str]) -> str | None:
    distinct = list(dict.fromkeys(parts))
    more = f" and {len(distinct) - _MOST_LOCKS} more" if len(distinct) > _MOST_LOCKS else ""
    return ("; ".join(distinct[:_MOST_LOCKS]) + more) or None


def _relation(plot: _Plot, key: int) -> str | None:
    """The table that a waiter wants; for a root the first that those who wait for it want."""
    knot = plot.knots[key]
    tables = [lock.relation for lock in knot.locks if not lock.granted] if knot.blockers else []
    own = next((table for table in tables if table), knot.row_of if knot.blockers else None)
    if own is not None or knot.blockers:
        return own
    return next((found for child in _under(plot.forest, key) if (found := _relation(plot, child))), None)


def _note(plot: _Plot, key: int) -> str | None:
    knot = plot.knots[key]
    circle = sorted(plot.knots[b].pid for waiter, b in plot.forest.cut if waiter == key)
    notes = [knot.note or ""]
    if circle:
        pids = " and ".join(str(pid) for pid in circle)
        notes.append(f"waits for {pids} behind it: a deadlock; the server ends one of them soon")
    return "; ".join(note for note in notes if note) or None


def _summarise(plot: _Plot, roots: list[int], kept: frozenset[int]) -> str:
    if not roots:
        return NOBODY_WAITS
    said = [_sentence(plot, key, kept) for key in roots[:_MOST_SAID]]
    if len(roots) > _MOST_SAID:
        said.append(f"{say_count(len(roots) - _MOST_SAID, 'more root')} below.")
    return " ".join(said)


def _sentence(plot: _Plot, key: int, kept: frozenset[int]) -> str:
    knot = plot.knots[key]
    who = ", ".join(f"{word} {fit_name(value)}" for word, value in (("user", knot.user), ("app", knot.app)) if value)
    longest = max((plot.knots[k].wait_s or 0.0 for k in _behind(plot.forest, key) & kept), default=0.0)
    count = plot.forest.behind[key]
    held = _held(plot, key)
    return (
        f"Root: {knot.name or f'session {knot.pid}'}{f' ({who})' if who else ''} {knot.doing}"
        f"{f' and holds {held}' if held and not held.startswith('none') else ''}; "
        f"{say_count(count, 'session')} {'waits' if count == 1 else 'wait'} behind it, the longest for "
        f"{say_seconds(longest)}."
    )


def _behind(forest: Forest, root: int) -> set[int]:
    """Everybody whose way up the tree ends at ``root``, or who waits for somebody on it beside the tree."""
    found: set[int] = set()
    level = [root]
    while level:
        level = [key for above in level for key in _under(forest, above) if key not in found and key != root]
        found.update(level)
    return found
