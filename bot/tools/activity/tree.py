"""Who stands behind whom: from "waits for" to trees in which every session is found once.

A session may wait for several others: for who holds the lock that it wants, and for who stands in front of it in the
queue for that lock. It is put behind a holder if there is one (fifty that want one row stand side by side), among
several behind the one that is itself held up the most, since that can go on last; the others are kept aside. Waits in
a circle (a deadlock that the server has not broken up yet) are cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The trees.

    Args:
        roots: those who wait for nobody, and one of each circle; the one that holds up most first.
        children: by session, in the order of their waits, the longest first.
        others: whom else a session waits for, beside its parent in the tree.
        behind: how many sessions cannot go on before this one does, because of locks that are held (of places in a
            queue where that is all that is in the way).
        cut: the waits that would close a circle: (who waits, for whom).
    """

    roots: tuple[int, ...]
    children: Mapping[int, tuple[int, ...]]
    others: Mapping[int, tuple[int, ...]]
    behind: Mapping[int, int]
    cut: frozenset[tuple[int, int]]


def plant(
    blockers: Mapping[int, Iterable[int]],
    wait_s: Mapping[int, float | None],
    holders: Mapping[int, Collection[int]] | None = None,
) -> Forest:
    """Build the trees.

    Args:
        blockers: for each session that waits, whom it waits for; repeats do not matter, waits for itself are dropped.
        wait_s: how long each has waited, for the order.
        holders: those of ``blockers`` that hold what the session wants; without them all are taken alike.
    """
    whole = {pid: tuple(sorted({b for b in found if b != pid})) for pid, found in blockers.items()}
    whole = {pid: found for pid, found in whole.items() if found}
    everyone = sorted({*whole, *(b for found in whole.values() for b in found)})
    edges = {pid: tuple(b for b in found if b in (holders or {}).get(pid, ())) or found for pid, found in whole.items()}

    waiters: dict[int, list[int]] = {pid: [] for pid in everyone}
    for pid, found in edges.items():
        for blocker in found:
            waiters[blocker].append(pid)

    def longest_first(pid: int) -> tuple[float, int]:
        return -(wait_s.get(pid) or 0.0), pid

    # From those who wait for nobody first, so that a circle further down is cut where the way from them meets it.
    free = [pid for pid in everyone if pid not in edges]
    order, cut = _walk(waiters, [*free, *sorted(edges, key=longest_first)])
    depth: dict[int, int] = {}
    parents: dict[int, int] = {}
    for pid in order:  # blockers come before those who wait for them
        real = [b for b in edges.get(pid, ()) if (pid, b) not in cut]
        depth[pid] = 1 + max((depth[b] for b in real), default=-1)
        if real:
            parents[pid] = max(real, key=lambda b: (depth[b], -b))
    behind: dict[int, set[int]] = {pid: set() for pid in everyone}
    for pid in reversed(order):
        for blocker in edges.get(pid, ()):
            if (pid, blocker) not in cut:
                behind[blocker] |= behind[pid] | {pid}
    children: dict[int, list[int]] = {pid: [] for pid in everyone}
    for pid in sorted(parents, key=longest_first):
        children[parents[pid]].append(pid)
    return Forest(
        roots=tuple(sorted((p for p in everyone if p not in parents), key=lambda p: (-len(behind[p]), p))),
        children={pid: tuple(found) for pid, found in children.items()},
        others={pid: tuple(b for b in whole.get(pid, ()) if parents.get(pid) != b) for pid in everyone},
        behind={pid: len(found) for pid, found in behind.items()},
        cut=frozenset(cut),
    )


def _walk(waiters: Mapping[int, Iterable[int]], starts: Iterable[int]) -> tuple[list[int], set[tuple[int, int]]]:
    """Order the sessions so that blockers come first, and find the waits that contradict any such order.

    A depth-first walk without recursion: a chain may be as long as ``max_connections``.
    """
    finished: list[int] = []
    cut: set[tuple[int, int]] = set()
    under_way: set[int] = set()
    seen: set[int] = set()
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        under_way.add(start)
        stack = [(start, iter(waiters[start]))]
        while stack:
            pid, remaining = stack[-1]
            waiter = next(remaining, None)
            if waiter is None:
                stack.pop()
                under_way.discard(pid)
                finished.append(pid)
            elif waiter in under_way:
                cut.add((waiter, pid))
            elif waiter not in seen:
                seen.add(waiter)
                under_way.add(waiter)
                stack.append((waiter, iter(waiters[waiter])))
    return finished[::-1], cut
