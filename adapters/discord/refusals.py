"""What Discord refused lately, so that it is not asked again.

Whoever gets more than 10,000 answers 401, 403 or 429 within ten minutes is shut out by its address
(docs.discord.com/developers/topics/rate-limits#invalid-request-limit-aka-cloudflare-bans); and nothing is gained by
asking for the same thing in a place that does not exist any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from adapters.discord.outcome import LOCKED, THIS_PLACE, Failed

FORBIDDEN_S = 60.0
"""How long a refusal holds that somebody can mend: a permission, an invitation, a token."""

GONE_S = 3_600.0
"""How long a place stays gone. Ids are never used again; this only bounds the memory."""

MOST = 2_000

_ANY = ""


class Refusals:
    """By kind of call and place.

    Args:
        monotonic: the clock, seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, str], tuple[Failed, float]] = OrderedDict()

    def find(self, kind: str, place: str) -> Failed | None:
        """Return what this call would get, None where nothing is known."""
        for key in ((_ANY, _ANY), (_ANY, place), (kind, place)):
            failed, until = self._known.get(key, (None, 0.0))
            if failed is not None and until > self._monotonic():
                return failed
        return None

    def is_gone(self, place: str) -> bool:
        """True for a place that does not exist any more, as far as is known."""
        failed = self.find(_ANY, place)
        return failed is not None and failed.is_gone

    def note(self, kind: str, place: str, failed: Failed) -> None:
        """Remember a refusal that the next call of this kind in this place would get as well."""
        if failed.status == 401 and not failed.code:
            key, seconds = (_ANY, _ANY), FORBIDDEN_S
        elif failed.is_gone:
            key, seconds = (_ANY, place), GONE_S
        elif failed.code in THIS_PLACE or failed.code == LOCKED:
            key, seconds = (kind, place), FORBIDDEN_S
        else:
            return
        self._known[key] = (failed, self._monotonic() + seconds)
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
