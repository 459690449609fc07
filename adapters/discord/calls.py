"""One call of Discord's REST API: its turn, its tries, and what its failure means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from discord.http import Route

from adapters.discord.http import Answer, DiscordHttp, Upload
from adapters.discord.outcome import CALL_ERRORS, Failed, build_broken, build_failed, build_not_sent, retry_after
from adapters.discord.pace import Pace, Turn, Wait, Window
from adapters.discord.refusals import Refusals
from adapters.discord.wire import flag_of, wire_of

log = structlog.get_logger("hermod.discord")

PATIENCE_S = 6.0
"""How long a post waits for its turn, and for short refusals: a little more than a window of Discord's."""

AGAIN_S = (0.5, 1.5)
"""When a call that Discord failed at is made again, where that cannot do anything twice."""

MOST_TRIES = 6

CALL_S = 20.0
UPLOAD_S = 45.0

UNPACED: Final = ""
"""The kind of first answers to interactions, which have no limit and three seconds."""


class DiscordCalls:
    """Makes calls. Safe to use concurrently; only cancellation is raised.

    Args:
        http: where the requests go; whoever owns it closes it.
        monotonic, sleep: the clock of ``pace``, which gives every call its turn.
    """

    def __init__(
        self, http: DiscordHttp, *, monotonic: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self.http = http
        self.pace = Pace(monotonic=monotonic, sleep=sleep)
        self.refusals = Refusals(monotonic)
        self._monotonic = monotonic
        self._sleep = sleep

    async def call(
        self,
        route: Route,
        kind: str,
        place: str,
        *,
        body: object = None,
        files: Sequence[Upload] = (),
        priority: int = 0,
        patience_s: float = PATIENCE_S,
        timeout_s: float | None = None,
        again: bool = True,
        passing: int = 0,
        part: str = "",
    ) -> Answer | Failed:
        """Make one call when it is its turn.

        Args:
            route: which one.
            kind: what shares its turns with it in ``place``; ``UNPACED`` for none.
            place: the channel, or what else Discord counts by.
            body, files: see ``DiscordHttp.attempt``.
            priority: see ``Reply.priority``; 2 never waits.
            patience_s: how long to wait for the turn, and for refusals and failures that are over soon.
            timeout_s: of one request.
            again: a request that Discord failed at (5xx) may be made again: it cannot do anything twice.
            passing: a code that the next call may well not get: such a refusal is not remembered, as others are.
            part: what is refused apart from the rest of its kind, although it shares its turns.

        Returns:
            An answer of success, else why there is none.
        """
        if not self.http.token:
            return build_not_sent(3.0, "not logged in to Discord yet")
        if (known := self.refusals.find(kind + part, place)) is not None:
            return known
        timeout_s = timeout_s or (UPLOAD_S if files else CALL_S)
        deadline = self._monotonic() + (0.0 if priority >= 2 else patience_s)
        pauses = list(AGAIN_S) if again else []
        failed = build_not_sent(patience_s, "Discord asks to wait")
        for _ in range(MOST_TRIES):
            left_s = max(deadline - self._monotonic(), 0.0)
            turn = await self._turn(kind, place, priority, left_s)
            if isinstance(turn, Wait):
                return build_not_sent(turn.after_s, "more calls than Discord takes at the moment")
            answer = await self._attempt(turn, route, body, files, timeout_s)
            if isinstance(answer, Answer):
                return answer
            failed = answer
            if failed.status == 429 and kind != UNPACED:
                continue  # the next turn comes when Discord says, if that is soon enough
            if failed.status < 500 or not pauses or self._monotonic() + pauses[0] > deadline:
                break
            await self._sleep(pauses.pop(0))
        if not passing or failed.code != passing:
            self.refusals.note(kind + part, place, failed)
        return failed

    async def _turn(self, kind: str, place: str, priority: int, patience_s: float) -> Turn | Wait | None:
        if kind == UNPACED:
            return None
        return await self.pace.turn(kind, place, priority=priority, patience_s=patience_s)

    async def _attempt(
        self, turn: Turn | None, route: Route, body: object, files: Sequence[Upload], timeout_s: float
    ) -> Answer | Failed:
        window: Window | None = None
        answer: Answer | None = None
        try:
            answer = await self.http.attempt(route, body=body, files=files, timeout_s=timeout_s)
            window = read_window(answer)
            if answer.status == 429 and turn is not None:
                everywhere = flag_of(wire_of(answer.data), "global") or "x-ratelimit-global" in answer.headers
                turn.refused(retry_after(answer), everywhere=everywhere)
        except CALL_ERRORS as error:
            return build_broken(error)
        finally:
            if turn is not None and answer is None:
                turn.left()
            elif turn is not None:
                turn.answered(window)
        return answer if 200 <= answer.status < 300 else build_failed(answer)


def read_window(answer: Answer) -> Window | None:
    """Read what an answer tells of its bucket; None when it tells nothing."""
    headers = answer.headers
    try:
        return Window(
            limit=int(headers["x-ratelimit-limit"]),
            remaining=int(headers["x-ratelimit-remaining"]),
            reset_after_s=float(headers["x-ratelimit-reset-after"]),
        )
    except (KeyError, ValueError):
        return None
