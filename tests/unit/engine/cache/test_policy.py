"""What is served again, to whom, for how long; and what happens when a backend does not work."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

import pytest

from agent_core.errors import ProviderUnavailable
from agent_core.llm.cache import CacheHit, MemoryExact, MemorySemantic
from tests.unit.engine.cache.cases import asked, embed_alike, embed_minilm, memory_cache, pairs
from tests.unit.engine.running import HandClock

WHY = asked("Why is the orders table slow?")
POLITE = asked("Hi, can you tell me why is the orders table slow, please?")


async def test_bug_39_a_negated_or_unrelated_question_is_not_served_from_the_cache() -> None:
    for pair in pairs("adversarial") + pairs("second adversarial"):
        cache = memory_cache()
        await cache.keep(asked(pair.a), "answer to a")
        assert await cache.find(asked(pair.b)) is None, pair  # although both vectors are equal


async def test_bug_39_the_threshold_is_a_similarity_that_has_to_be_exceeded() -> None:
    vectors = {WHY.text: [1.0, 0.0], POLITE.text: [0.92, (1 - 0.92**2) ** 0.5]}

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [vectors[text] for text in texts]

    found: dict[float, CacheHit | None] = {}
    for threshold in (0.05, 0.91, 0.92 + 1e-9, 0.99):
        cache = memory_cache(embed=embed, threshold=threshold)
        await cache.keep(WHY, "no index")
        found[threshold] = await cache.find(POLITE)
    assert found[0.99] is None
    assert found[0.92 + 1e-9] is None
    hit = found[0.91]
    assert hit is not None
    assert hit.score == pytest.approx(0.92)
    assert found[0.05] is not None  # a lower threshold lets more through; a distance would let less


async def test_an_unrelated_vector_is_no_hit_even_where_the_gate_agrees() -> None:
    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0, 0.0] if text == WHY.text else [0.0, 1.0] for text in texts]

    cache = memory_cache(embed=embed)
    await cache.keep(WHY, "no index")
    assert await cache.find(POLITE) is None


async def test_a_trivial_restatement_hits_the_exact_tier_at_least_nine_times_in_ten() -> None:
    hits = 0
    for pair in pairs("restatement"):
        cache = memory_cache(semantic=None)
        await cache.keep(asked(pair.a), "answer")
        hits += await cache.find(asked(pair.b)) is not None
    assert hits == 60


async def test_with_the_vectors_of_a_real_model_some_paraphrases_hit_the_semantic_tier() -> None:
    hits = 0
    for pair in pairs("paraphrase"):
        cache = memory_cache(embed=embed_minilm)
        await cache.keep(asked(pair.a), "answer")
        hit = await cache.find(asked(pair.b))
        hits += hit is not None and hit.tier == "semantic"
    assert hits == 6  # of 20; all-MiniLM-L6-v2, threshold 0.92, gate


async def test_a_semantic_hit_is_promoted_to_the_exact_tier_with_the_time_that_is_left() -> None:
    clock = HandClock()
    cache = memory_cache(clock=clock, ttl_s=100.0)
    await cache.keep(WHY, "no index")
    clock.seconds = 60
    hit = await cache.find(POLITE)
    assert hit is not None
    assert (hit.answer, hit.tier, hit.age_s) == ("no index", "semantic", 60.0)
    hit = await cache.find(POLITE)
    assert hit is not None
    assert (hit.tier, hit.age_s, hit.score) == ("exact", 60.0, None)
    clock.seconds = 99
    assert await cache.find(POLITE) is not None
    clock.seconds = 100
    assert await cache.find(POLITE) is None
    assert await cache.find(WHY) is None


@pytest.mark.parametrize("semantic", [False, True])
@pytest.mark.parametrize(("given", "lives_s"), [(None, 100), (30.0, 30), (500.0, 100)])
async def test_the_lower_time_to_live_counts_in_both_tiers(semantic: bool, given: float | None, lives_s: int) -> None:
    clock = HandClock()
    cache = memory_cache(clock=clock, ttl_s=100.0, **({"exact": None} if semantic else {"semantic": None}))
    await cache.keep(WHY, "no index", ttl_s=given)
    clock.seconds = lives_s - 1
    assert await cache.find(WHY) is not None
    clock.seconds = lives_s
    assert await cache.find(WHY) is None


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan")])
async def test_an_answer_without_time_to_live_is_not_kept(ttl_s: float) -> None:
    cache = memory_cache()
    await cache.keep(WHY, "no index", ttl_s=ttl_s)
    assert await cache.find(WHY) is None


@pytest.mark.parametrize(
    "text", ["What is the lag now?", "现在几点?", "What do my alerts say?", "x" * 4001, "last 5 minutes"]
)
async def test_questions_about_the_moment_or_the_asker_and_very_long_ones_are_neither_kept_nor_served(
    text: str,
) -> None:
    cache = memory_cache()
    await cache.keep(asked(text), "12:00")
    assert await cache.find(asked(text)) is None


async def test_an_empty_answer_or_an_empty_scope_keeps_nothing() -> None:
    cache = memory_cache()
    await cache.keep(WHY, "  \n")
    await cache.keep(asked(WHY.text, scope=""), "no index")
    assert await cache.find(WHY) is None
    assert await cache.find(asked(WHY.text, scope="")) is None


async def test_scope_and_context_cannot_be_shifted_into_each_other() -> None:
    cache = memory_cache()
    await cache.keep(asked("why?", scope="a", context="bc"), "x")
    assert await cache.find(asked("why?", scope="ab", context="c")) is None


# -- backends that do not work -----------------------------------------------------------------------


async def test_a_failing_embedding_provider_is_a_miss_one_warning_and_left_alone_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls = HandClock(), []

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        calls.append(tuple(texts))
        raise ProviderUnavailable("no route")

    cache = memory_cache(embed=embed, clock=clock)
    with caplog.at_level(logging.WARNING):
        await cache.keep(WHY, "no index")
        hit = await cache.find(WHY)
        assert hit is not None
        assert hit.tier == "exact"
        assert await cache.find(POLITE) is None
        assert len(calls) == 1
        clock.seconds = 31
        assert await cache.find(POLITE) is None
    assert len(calls) == 2
    assert [r.getMessage() for r in caplog.records] == ["the cache's embedding failed and is left out: no route"]


async def test_a_hanging_embedding_provider_costs_the_bound_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        await asyncio.Event().wait()
        return []

    cache = memory_cache(embed=embed, wait_s=0.02)
    async with asyncio.timeout(30):
        assert await cache.find(WHY) is None
    assert "TimeoutError" in caplog.text


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
async def test_a_vector_without_direction_is_a_miss(vector: list[float]) -> None:
    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [vector for _ in texts]

    cache = memory_cache(embed=embed, exact=None)
    await cache.keep(WHY, "no index")
    assert await cache.find(WHY) is None


async def test_no_vectors_at_all_is_a_miss() -> None:
    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return []

    cache = memory_cache(embed=embed, exact=None)
    await cache.keep(WHY, "no index")
    assert await cache.find(WHY) is None


async def test_a_cancelled_look_up_stays_cancelled() -> None:
    entered = asyncio.Event()

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        entered.set()
        await asyncio.Event().wait()
        return []

    task = asyncio.create_task(memory_cache(embed=embed, wait_s=60).find(WHY))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- memory ------------------------------------------------------------------------------------------


async def test_the_exact_tier_drops_what_was_used_least_recently() -> None:
    cache = memory_cache(exact=MemoryExact(limit=2), semantic=None)
    for text in ("one?", "two?"):
        await cache.keep(asked(text), text)
    assert await cache.find(asked("one?")) is not None
    await cache.keep(asked("three?"), "three")
    assert [await cache.find(asked(t)) is not None for t in ("one?", "two?", "three?")] == [True, False, True]


async def test_the_semantic_tier_drops_the_oldest() -> None:
    cache = memory_cache(exact=None, semantic=MemorySemantic(limit=2))
    for text in ("one?", "two?", "one?", "three?"):
        await cache.keep(asked(text), text)
    assert [await cache.find(asked(t)) is not None for t in ("one?", "two?", "three?")] == [True, False, True]


@pytest.mark.parametrize("numpy", [True, False])
async def test_numpy_and_plain_python_rank_alike(numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    tier = MemorySemantic()
    cache = memory_cache(exact=None, semantic=tier, embed=embed_minilm)
    for pair in pairs("adversarial"):
        await cache.keep(asked(pair.a), pair.a)
    vector = (await embed_minilm([pairs("adversarial")[3].b]))[0]
    ranked = await tier.search(asked("").partition, vector, 0.0, 3)
    assert [round(score, 4) for score, _ in ranked] == sorted((round(s, 4) for s, _ in ranked), reverse=True)
    assert ranked[0][1].question == pairs("adversarial")[3].a
    assert 0.9 < ranked[0][0] <= 1.0


async def test_vectors_of_another_length_are_not_compared() -> None:
    tier = MemorySemantic()
    long = memory_cache(exact=None, semantic=tier, embed=embed_minilm)
    await long.keep(asked(pairs("adversarial")[0].a), "x")
    short = memory_cache(exact=None, semantic=tier, embed=embed_alike)
    assert await short.find(asked(pairs("adversarial")[0].a)) is None


async def test_a_look_up_and_the_keeping_after_it_embed_the_question_once() -> None:
    calls = []

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        calls.append(texts)
        return await embed_alike(texts)

    cache = memory_cache(embed=embed)
    await cache.find(WHY)
    await cache.keep(WHY, "no index")
    assert len(calls) == 1
