"""What a model call costs. An unknown price is None, never 0.

Prices come from the ``genai-prices`` distribution (its data is in the package; nothing is fetched) or from the
settings. It is imported only when a price is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from agent_core.llm.provider import OFFLINE
from agent_core.llm.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for one million tokens; caching costs what ``input`` does where it has no price of its own (None)."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def cost_usd(self, usage: Usage) -> float:
        """Price of ``usage`` in US dollars."""
        cached, written = usage.cached_input_tokens, usage.cache_write_tokens
        total = (usage.input_tokens - cached - written) * self.input + usage.output_tokens * self.output
        total += cached * (self.input if self.cached_input is None else self.cached_input)
        total += written * (self.input if self.cache_write is None else self.cache_write)
        return total / 1e6


FREE = Price(input=0.0, output=0.0)
"""For models that run here and cost nothing."""


class PriceList:
    """Looks prices up, once for each model.

    Args:
        overrides: prices by *provider* name that win over the package's. A provider's answer names its model as the
            vendor likes (with a date, say), so the model's name would be no key to what was configured.
    """

    def __init__(self, overrides: Mapping[str, Price] | None = None) -> None:
        self._overrides = dict(overrides or {})
        self._known: dict[str, Price | None] = {OFFLINE: FREE}

    def cost_usd(self, model: str, usage: Usage, *, provider: str = "") -> float | None:
        """Price of ``usage`` in US dollars, or None when no price is known.

        Args:
            model: as the answer names it.
            usage: what was used.
            provider: the configured name of who answered.
        """
        if provider in self._overrides:
            return self._overrides[provider].cost_usd(usage)
        if model not in self._known:
            self._known[model] = _look_up(model)
        price = self._known[model]
        return None if price is None else price.cost_usd(usage)


def _look_up(model: str) -> Price | None:
    """Read a flat price; a model with tiers is priced at its first tier (short prompts)."""
    import genai_prices

    try:
        found = genai_prices.calc_price(genai_prices.Usage(input_tokens=1, output_tokens=1), model_ref=model)
    except LookupError:
        return None
    rates = found.model_price
    given, made = _flat(rates.input_mtok), _flat(rates.output_mtok)
    if given is None or made is None:
        return None
    cached, written = _flat(rates.cache_read_mtok), _flat(rates.cache_write_mtok)
    return Price(input=given, output=made, cached_input=cached, cache_write=written)


def _flat(rate: object) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, Decimal | int | float):
        return float(rate)
    base = getattr(rate, "base", None)
    return None if base is None else float(base)
