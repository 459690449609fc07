"""The benchmarks' own machinery: the model server's script, the count of work, and the table."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cells import BASE, CELLS, DONE, WORD
from benchmarks.fleet import WorkerFailed, open_server, start_worker
from benchmarks.table import Row, render_table

SEQUENTIAL = replace(CELLS[0], runs=2)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with open_server() as found:
        yield found


def ask(url: str, model: str, results: list[str]) -> dict[str, Any]:
    messages = [{"role": "tool", "content": text} for text in results]
    body = json.dumps({"model": model, "messages": messages}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=10) as answer:
        message = json.loads(answer.read())["choices"][0]["message"]
    assert isinstance(message, dict)
    return message


def test_the_server_asks_for_its_calls_round_after_round_and_then_says_that_all_is_done(url: str) -> None:
    calls = ask(url, "tools-2x2", [])["tool_calls"]
    assert [json.loads(c["function"]["arguments"]) for c in calls] == [{"a": n, "b": BASE} for n in (0, 1)]
    assert [c["id"] for c in ask(url, "tools-2x2", ["1000", "1001"])["tool_calls"]] == ["call_2", "call_3"]
    assert ask(url, "tools-2x2", ["1000", "1001", "1002", "1003"])["content"] == DONE


def test_a_contender_that_sends_a_wrong_result_is_not_told_that_all_is_done(url: str) -> None:
    assert ask(url, "tools-1x2", ["1000", "7"])["content"] == "2 results, wrong: [1]"


def test_a_stream_has_as_many_chunks_as_its_model_says(url: str) -> None:
    body = json.dumps({"model": "stream-25", "stream": True}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=10) as answer:
        assert answer.read().decode().count(WORD) == 25


def test_a_worker_makes_the_runs_it_is_asked_for_and_none_goes_wrong(url: str) -> None:
    worker = start_worker("hermod", url, Path("nowhere"))
    try:
        assert worker.measure(SEQUENTIAL)["errors"] == 0
    finally:
        worker.stop()


def test_a_worker_that_dies_is_named_with_its_last_words(url: str) -> None:
    worker = start_worker("raw", url, Path("nowhere"))
    try:
        with pytest.raises(WorkerFailed, match="raw: KeyError: 'no such cell'"):
            worker.measure(replace(SEQUENTIAL, name="no such cell"))
    finally:
        worker.stop()


def test_a_peer_without_its_environment_is_said_to_be_missing(url: str) -> None:
    with pytest.raises(WorkerFailed, match=r"pydantic-ai: .* is not there; `make bench` makes it"):
        start_worker("pydantic-ai", url, Path("nowhere"))


def test_the_table_names_a_cell_once_and_marks_what_was_missed() -> None:
    rows = [
        Row(cell="a", who="x", value="1", bound="< 2"),
        Row(cell="a", who="y", value="3", bound="< 2", holds=False),
        Row(cell="b", who="x", value="1"),
    ]
    lines = render_table(rows).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["a", "", "b"]
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["ok", "MISSED", ""]
