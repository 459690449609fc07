"""Costs are those of the configured price, else of the package's list, else unknown; never a silent 0."""

from __future__ import annotations

import pytest

from agent_core.llm.pricing import FREE, Price, PriceList
from agent_core.llm.types import Usage

USED = Usage(input_tokens=1_000_000, output_tokens=100_000)


def test_a_configured_price_holds_whatever_name_the_answer_gives_its_model() -> None:
    prices = PriceList({"main": Price(input=1000.0, output=2000.0)})
    for name in ("gpt-4o-mini", "gpt-4o-mini-2024-07-18", "something else"):
        assert prices.cost_usd(name, USED, provider="main") == pytest.approx(1200.0)


def test_two_providers_of_one_model_have_their_own_prices() -> None:
    prices = PriceList({"dear": Price(input=10.0, output=0.0), "offline": FREE})
    assert prices.cost_usd("m", USED, provider="dear") == pytest.approx(10.0)
    assert prices.cost_usd("m", USED, provider="offline") == 0.0
    assert prices.cost_usd("m", USED, provider="other") is None


def test_a_known_model_has_its_published_price() -> None:
    # openai.com/api/pricing: gpt-4o-mini 0.15 and 0.60 US dollars a million
    assert PriceList().cost_usd("gpt-4o-mini", USED, provider="main") == pytest.approx(0.15 + 0.06)


def test_cached_input_is_priced_as_such() -> None:
    price = Price(input=2.0, output=0.0, cached_input=0.5)
    used = Usage(input_tokens=1_000_000, cached_input_tokens=400_000)
    assert price.cost_usd(used) == pytest.approx(0.6 * 2.0 + 0.4 * 0.5)


def test_input_that_a_cache_takes_in_is_priced_as_such() -> None:
    # platform.claude.com/docs/en/about-claude/pricing: Claude Haiku 4.5 reads for 1, writes for 1.25, answers for 5
    used = Usage(input_tokens=1_000_000, cached_input_tokens=400_000, cache_write_tokens=200_000, output_tokens=100_000)
    cost_usd = PriceList().cost_usd("claude-haiku-4-5", used, provider="claude")
    assert cost_usd == pytest.approx(0.4 * 1.0 + 0.4 * 0.1 + 0.2 * 1.25 + 0.1 * 5.0)
    assert Price(input=2.0, output=0.0).cost_usd(used) == pytest.approx(2.0)
