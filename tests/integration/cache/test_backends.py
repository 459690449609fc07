"""The same promises on every backend, and what happens when a server is away."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from agent_core.llm.cache import AnswerCache, MemoryExact, MemorySemantic
from agent_core.llm.cache.milvus import MilvusSemantic
from agent_core.llm.cache.policy import Entry, ExactTier, SemanticTier
from agent_core.llm.cache.redis import RedisExact
from tests.unit.engine.cache.cases import asked, embed_alike, pairs
from tests.unit.engine.running import HandClock

WHY = asked("Why is the orders table slow?")
POLITE = asked("Hi, can you tell me why is the orders table slow, please?")
BACKENDS = [
    pytest.param("exact-memory"),
    pytest.param("exact-redis", marks=pytest.mark.service("valkey")),
    pytest.param("semantic-memory"),
    pytest.param("semantic-milvus", marks=pytest.mark.service("milvus")),
]
SEMANTIC = BACKENDS[2:]


def build(tier: ExactTier | SemanticTier, clock: HandClock) -> AnswerCache:
    if isinstance(tier, MemorySemantic | MilvusSemantic):
        return AnswerCache(exact=None, semantic=tier, embed=embed_alike, clock=clock, ttl_s=100.0, wait_s=10.0)
    assert isinstance(tier, MemoryExact | RedisExact)
    return AnswerCache(exact=tier, clock=clock, ttl_s=100.0, wait_s=10.0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def cache(request: pytest.FixtureRequest, clock: HandClock) -> AsyncIterator[AnswerCache]:
    match request.param:
        case "exact-memory":
            built = build(MemoryExact(), clock)
        case "exact-redis":
            built = build(RedisExact(request.getfixturevalue("redis_url")), clock)
        case "semantic-memory":
            built = build(MemorySemantic(), clock)
        case _:
            built = build(MilvusSemantic(request.getfixturevalue("milvus_uri"), timeout_s=10.0), clock)
    await built.prepare()
    yield built
    await built.aclose()


@pytest.mark.parametrize("cache", BACKENDS, indirect=True)
async def test_an_answer_comes_back_word_for_word_with_its_age(cache: AnswerCache, clock: HandClock) -> None:
    await cache.keep(WHY, "Kein Index: 'orders'\n\"用户\" 👋")
    clock.seconds = 7
    hit = await cache.find(WHY)
    assert hit is not None
    assert (hit.answer, hit.age_s) == ("Kein Index: 'orders'\n\"用户\" 👋", 7.0)


@pytest.mark.parametrize("cache", BACKENDS, indirect=True)
async def test_answers_never_cross_channel_role_or_context(cache: AnswerCache) -> None:
    await cache.keep(WHY, "no index")
    for scope in ("C2/oncall", "C1/guest", "C1", "c1/oncall", "", '" or 1 == 1 or "'):
        assert await cache.find(asked(WHY.text, scope=scope)) is None
    assert await cache.find(asked(WHY.text, context="claude")) is None
    await cache.keep(asked(WHY.text, scope="C2/oncall"), "the other channel's answer")
    hit = await cache.find(WHY)
    assert hit is not None
    assert hit.answer == "no index"


@pytest.mark.parametrize("cache", BACKENDS, indirect=True)
async def test_an_answer_lives_as_long_as_it_may(cache: AnswerCache, clock: HandClock) -> None:
    await cache.keep(WHY, "no index", ttl_s=50.0)
    clock.seconds = 49
    assert await cache.find(WHY) is not None
    clock.seconds = 50
    assert await cache.find(WHY) is None


@pytest.mark.parametrize("cache", BACKENDS, indirect=True)
async def test_a_newer_answer_replaces_the_older(cache: AnswerCache, clock: HandClock) -> None:
    await cache.keep(WHY, "old")
    clock.seconds = 5
    await cache.keep(WHY, "new")
    hit = await cache.find(WHY)
    assert hit is not None
    assert (hit.answer, hit.age_s) == ("new", 0.0)


@pytest.mark.parametrize("cache", BACKENDS, indirect=True)
async def test_bug_39_no_adversarial_question_is_served_though_vectors_are_equal(cache: AnswerCache) -> None:
    group = pairs("adversarial")
    for pair in group:
        await cache.keep(asked(pair.a, scope=pair.a), pair.a)
    for pair in group:
        assert await cache.find(asked(pair.b, scope=pair.a)) is None, pair


@pytest.mark.parametrize("cache", SEMANTIC, indirect=True)
async def test_bug_39_the_score_is_a_similarity_one_for_equal_vectors(cache: AnswerCache, clock: HandClock) -> None:
    await cache.keep(WHY, "no index")
    hit = await cache.find(POLITE)
    assert hit is not None
    assert hit.tier == "semantic"
    assert hit.score == pytest.approx(1.0)


@pytest.mark.parametrize("cache", SEMANTIC, indirect=True)
async def test_bug_39_the_closest_comes_first_and_unrelated_or_opposite_vectors_score_low(cache: AnswerCache) -> None:
    tier = cache.semantic
    assert tier is not None
    for name, vector in {"same": [2.0, 0.0, 0.0], "near": [1.0, 0.5, 0.0], "right angle": [0.0, 3.0, 0.0]}.items():
        await tier.put(name, "p", vector, Entry(question=name, answer="", kept_at=0.0, expires_at=9.0))
    await tier.put(
        "opposite", "p", [-1.0, 0.0, 0.0], Entry(question="opposite", answer="", kept_at=0.0, expires_at=9.0)
    )
    found = await tier.search("p", [1.0, 0.0, 0.0], 0.0, 10)
    assert [entry.question for _, entry in found] == ["same", "near", "right angle", "opposite"]
    assert [score for score, _ in found] == pytest.approx([1.0, 1 / 1.25**0.5, 0.0, -1.0], abs=1e-5)
    assert len(await tier.search("p", [1.0, 0.0, 0.0], 0.0, 2)) == 2
    assert await tier.search("p", [1.0, 0.0, 0.0], 9.0, 10) == []


@pytest.mark.parametrize("cache", [SEMANTIC[1]], indirect=True)
async def test_expired_rows_leave_milvus(cache: AnswerCache, clock: HandClock) -> None:
    await cache.keep(WHY, "no index")
    clock.seconds = 200
    await cache.keep(asked("Which tables have no key?"), "none")
    tier = cache.semantic
    assert tier is not None
    found = await tier.search(WHY.partition, (await embed_alike([""]))[0], 0.0, 10)
    assert [entry.question for _, entry in found] == ["Which tables have no key?"]


# -- Redis -------------------------------------------------------------------------------------------


@pytest.mark.service("valkey")
async def test_a_second_process_hits_the_entry_of_the_first(redis_url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from agent_core.llm.cache import AnswerCache, CacheQuestion\n"
        "from agent_core.llm.cache.redis import RedisExact\n"
        "async def main():\n"
        "    cache = AnswerCache(exact=RedisExact(sys.argv[1]), wait_s=10)\n"
        "    await cache.keep(CacheQuestion(scope='C1/oncall', text='why is the ORDERS table slow ?!', "
        "context='gpt'), 'x')\n"
        "    await cache.aclose()\n"
        "asyncio.run(main())\n"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, redis_url], check=True, timeout=100)
    cache = AnswerCache(exact=RedisExact(redis_url), wait_s=10.0)
    hit = await cache.find(WHY)
    await cache.aclose()
    assert hit is not None
    assert (hit.answer, hit.tier) == ("x", "exact")


@pytest.mark.service("valkey")
async def test_redis_holds_only_hashed_names_and_lets_entries_expire(redis_url: str, clock: HandClock) -> None:
    from redis.asyncio import Redis

    tier = RedisExact(redis_url)
    await build(tier, clock).keep(WHY, "no index", ttl_s=50.0)
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        keys = await client.keys("*")
        assert keys == [f"hermod:answer:{WHY.key}"]
        assert 0 < await client.pttl(keys[0]) <= 50_000
        await client.set(keys[0], '{"answer": "of another program"}')
        assert await build(tier, clock).find(WHY) is None
        await client.set(keys[0], "not JSON")
        assert await build(tier, clock).find(WHY) is None
    await tier.aclose()


@pytest.mark.service("valkey")
async def test_a_semantic_hit_is_promoted_to_redis_for_the_time_that_is_left(redis_url: str, clock: HandClock) -> None:
    from redis.asyncio import Redis

    parts = {"embed": embed_alike, "clock": clock, "ttl_s": 100.0, "wait_s": 10.0}
    cache = AnswerCache(exact=RedisExact(redis_url), semantic=MemorySemantic(), **parts)  # type: ignore[arg-type]
    await cache.keep(WHY, "no index")
    clock.seconds = 60
    assert await cache.find(POLITE) is not None
    async with Redis.from_url(redis_url) as client:
        assert 0 < await client.pttl(f"hermod:answer:{POLITE.key}") <= 40_000
    await cache.aclose()


@pytest.mark.service("valkey")
async def test_without_redis_every_look_up_is_a_miss_and_one_warning_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = AnswerCache(exact=RedisExact("redis://127.0.0.1:1"), wait_s=0.3)
    with caplog.at_level(logging.WARNING, "agent_core.cache"):
        for _ in range(3):
            await cache.keep(WHY, "no index")
            assert await cache.find(WHY) is None
    await cache.aclose()
    assert len([r for r in caplog.records if r.name == "agent_core.cache"]) == 1


@pytest.mark.service("valkey")
async def test_a_redis_that_accepts_and_never_answers_costs_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    cache = AnswerCache(exact=RedisExact(f"redis://127.0.0.1:{port}"), wait_s=0.05)
    async with asyncio.timeout(30):
        assert await cache.find(WHY) is None
        await cache.aclose()
    done.set()
    server.close()
    await server.wait_closed()


@pytest.mark.service("milvus")
async def test_without_milvus_the_exact_tier_still_serves_and_one_warning_is_logged(
    caplog: pytest.LogCaptureFixture, clock: HandClock
) -> None:
    semantic = MilvusSemantic("http://127.0.0.1:1", timeout_s=0.5)
    cache = AnswerCache(exact=MemoryExact(), semantic=semantic, embed=embed_alike, clock=clock, wait_s=5.0)
    with caplog.at_level(logging.WARNING, "agent_core.cache"):
        await cache.prepare()
        await cache.keep(WHY, "no index")
        assert await cache.find(POLITE) is None
        clock.seconds = 31
        assert await cache.find(POLITE) is None
        assert await cache.find(WHY) is not None
    await cache.aclose()
    assert [r.levelname for r in caplog.records if r.name == "agent_core.cache"] == ["WARNING"]


@pytest.mark.service("milvus")
async def test_vectors_of_two_lengths_live_in_two_collections(milvus_uri: str, clock: HandClock) -> None:
    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0, 1.0] for _ in texts]

    tier = MilvusSemantic(milvus_uri, timeout_s=10.0)
    long = build(tier, clock)
    short = AnswerCache(exact=None, semantic=tier, embed=embed, clock=clock, wait_s=10.0)
    await long.keep(WHY, "long")
    assert await short.find(WHY) is None
    await short.keep(WHY, "short")
    hits = [await long.find(WHY), await short.find(WHY)]
    await tier.aclose()
    assert [hit and hit.answer for hit in hits] == ["long", "short"]


@pytest.mark.service("milvus")
async def test_a_milvus_that_goes_away_is_a_miss(milvus_uri: str, clock: HandClock) -> None:
    from milvus_lite.server_manager import server_manager_instance

    cache = build(MilvusSemantic(milvus_uri, timeout_s=10.0), clock)
    await cache.prepare()
    await cache.keep(WHY, "no index")
    assert await cache.find(POLITE) is not None
    await asyncio.to_thread(server_manager_instance.release_server, milvus_uri)
    assert await cache.find(POLITE) is None
    await cache.keep(WHY, "no index")
    await cache.aclose()


@pytest.mark.parametrize("cache", BACKENDS, indirect=True)
async def test_what_a_thread_left_can_be_forgotten_and_nothing_else(cache: AnswerCache) -> None:
    other = asked("Why is the users table slow?")
    await cache.keep(replace(WHY, origin="slack:T1/C1/1.1"), "no index")
    await cache.keep(replace(other, origin="slack:T1/C1/2.2"), "no memory")
    assert await cache.count("slack:T1/C1/1.1") == 1
    assert await cache.forget("slack:T1/C1/1.1") == 1
    assert await cache.count("slack:T1/C1/1.1") == 0
    assert await cache.find(WHY) is None
    hit = await cache.find(other)
    assert hit is not None
    assert hit.answer == "no memory"


@pytest.mark.service("milvus")
async def test_a_later_process_finds_what_an_earlier_one_kept_in_milvus(milvus_uri: str, clock: HandClock) -> None:
    first = build(MilvusSemantic(milvus_uri, timeout_s=10.0), clock)
    await first.keep(WHY, "no index")
    await first.aclose()
    second = build(MilvusSemantic(milvus_uri, timeout_s=10.0), clock)
    hit = await second.find(WHY)
    await second.aclose()
    assert hit is not None
    assert hit.answer == "no index"
