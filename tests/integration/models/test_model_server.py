"""The local model server keeps to the vendor's protocol: each of its features, seen by the official client."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

from agent_core.llm.tokens import load_counter
from tests.servers.openai import OpenAIServer

ASK: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(models=("fake-large", "o-fake"), reasoning=("o-fake",)) as running:
        running.fallback = None
        yield running


@pytest.fixture
async def client(server: OpenAIServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0, timeout=30) as made:
        yield made


async def ask(client: AsyncOpenAI, messages: Any = ASK, **body: Any) -> Any:
    return await client.chat.completions.create(**{"model": "fake-large", "messages": messages, **body})


async def refused(client: AsyncOpenAI, messages: Any = ASK, **body: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, messages, **body)
    assert caught.value.type == "invalid_request_error"
    return caught.value


async def stream(client: AsyncOpenAI, **body: Any) -> list[ChatCompletionChunk]:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return [chunk async for chunk in await ask(client, **{**options, **body})]


def call(*ids: str) -> Any:
    calls = [{"id": i, "type": "function", "function": {"name": "add", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": "1"}


# -- histories: API reference, "Create chat completion", messages --------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "said", "param"),
    [
        ([*ASK, call("a", "b"), result("a")], "did not have response messages: b", "messages"),
        ([*ASK, call("a"), *ASK], "did not have response messages: a", "messages.[2].role"),
        ([*ASK, result("a")], "must be a response to a preceeding message", "messages.[1].role"),
        ([*ASK, call("a"), result("b")], "must be a response to a preceeding message", "messages.[2].role"),
        ([*ASK, call("a"), result("a"), result("a")], "must be a response to a preceeding", "messages.[3].role"),
        (
            [*ASK, call("a", "a"), result("a")],
            "Duplicate value for 'tool_call_id' of a",
            "messages[1].tool_calls[1].id",
        ),
        ([*ASK, {"role": "assistant", "content": None}], "expected a string, got null", "messages.[1].content"),
        ([], "empty array", "messages"),
    ],
)
async def test_a_history_that_does_not_pair_is_refused_in_the_vendors_words(
    server: OpenAIServer, client: AsyncOpenAI, messages: Any, said: str, param: str
) -> None:
    error = await refused(client, messages)
    assert said in error.message
    assert error.param == param
    assert len(server.violations) == 1


async def test_a_history_that_pairs_is_answered(server: OpenAIServer, client: AsyncOpenAI) -> None:
    server.on().text("ok")
    answer = await ask(client, [*ASK, call("a", "b"), result("b"), result("a"), *ASK])
    assert answer.choices[0].message.content == "ok"
    assert [r.outcome for r in server.requests] == ["answered"]


# -- parameters: guides "Reasoning", "Function calling" --------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"parallel_tool_calls": False}, "parallel_tool_calls", None),
        ({"tool_choice": "required"}, "tool_choice", None),
        ({"tools": []}, "tools", "empty_array"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens", "invalid_parameter_combination"),
        ({"temperature": 3}, "temperature", "decimal_outside_range"),
        ({"model": "o-fake", "max_tokens": 5}, "max_tokens", "unsupported_parameter"),
        ({"model": "o-fake", "temperature": 0.7}, "temperature", "unsupported_value"),
        ({"extra_body": {"thinking": True}}, None, None),
    ],
)
async def test_a_parameter_that_the_model_does_not_take_is_refused(
    client: AsyncOpenAI, body: Any, param: str | None, code: str | None
) -> None:
    error = await refused(client, **body)
    assert (error.param, error.code) == (param, code)


async def test_a_reasoning_model_takes_what_is_left(server: OpenAIServer, client: AsyncOpenAI) -> None:
    server.on().text("ok")
    answer = await ask(client, model="o-fake", max_completion_tokens=50, temperature=1, tools=[TOOL])
    assert answer.choices[0].message.content == "ok"


# -- schemas: guide "Structured outputs", "Supported schemas" -------------------------------------------------------


def strict(schema: Any) -> Any:
    return [{"type": "function", "function": {"name": "add", "strict": True, "parameters": schema}}]


CLOSED = {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object", "properties": {}}, "'additionalProperties' is required to be supplied and to be false"),
        ({**CLOSED, "properties": {"a": {"type": "integer"}}}, "Missing 'a'"),
        ({**CLOSED, "properties": {"a": {"type": "array"}}, "required": ["a"]}, "array schema missing items"),
        (
            {**CLOSED, "properties": {"a": {"type": "integer", "default": 1}}, "required": ["a"]},
            "'default' is not permitted",
        ),
        (
            {**CLOSED, "properties": {"a": {"anyOf": [{"type": "object"}]}}, "required": ["a"]},
            "context=('properties', 'a', 'anyOf', '0')",
        ),
        ({"type": "string"}, "schema must be a JSON Schema of 'type: \"object\"'"),
    ],
)
async def test_a_strict_schema_that_is_open_is_refused_for_tools_and_for_answers(
    client: AsyncOpenAI, schema: Any, said: str
) -> None:
    error = await refused(client, tools=strict(schema))
    assert said in error.message
    assert error.code == "invalid_function_parameters"
    wanted = {"type": "json_schema", "json_schema": {"name": "report", "strict": True, "schema": schema}}
    assert said in (await refused(client, response_format=wanted)).message


async def test_a_closed_strict_schema_and_an_open_one_without_strict_are_taken(
    server: OpenAIServer, client: AsyncOpenAI
) -> None:
    server.on().text("{}")
    closed = {**CLOSED, "properties": {"a": {"type": ["integer", "null"]}}, "required": ["a"]}
    await ask(client, tools=strict(closed))
    await ask(client, tools=[TOOL])


async def test_json_mode_wants_the_word_in_the_messages(server: OpenAIServer, client: AsyncOpenAI) -> None:
    server.on().json({"a": 1})
    assert "must contain the word 'json'" in (await refused(client, response_format={"type": "json_object"})).message
    asked = [{"role": "user", "content": "as JSON, please"}]
    assert (await ask(client, asked, response_format={"type": "json_object"})).choices[0].message.content == '{"a": 1}'


# -- failures: guides "Error codes" and "Rate limits"; RFC 9110, 10.2.3 ----------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
async def test_a_status_is_the_clients_error_for_it(
    server: OpenAIServer, client: AsyncOpenAI, status: int, error: type[Exception]
) -> None:
    server.on().fail(status)
    with pytest.raises(error):
        await ask(client)
    assert [r.outcome for r in server.requests] == [f"failed {status}"]


async def test_the_time_to_wait_comes_in_each_of_its_forms(server: OpenAIServer, client: AsyncOpenAI) -> None:
    headers, began = {}, time.time()
    for form in ("seconds", "date", "ms", "both"):
        server.on().fail(429, retry_after=7, retry_form=form).once()
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(client)
        headers[form] = caught.value.response.headers
    assert headers["seconds"]["Retry-After"] == headers["both"]["Retry-After"] == "7"
    assert headers["ms"]["retry-after-ms"] == headers["both"]["retry-after-ms"] == "7000"
    assert "Retry-After" not in headers["ms"]
    told = parsedate_to_datetime(headers["date"]["Retry-After"]).timestamp()  # in whole seconds
    assert began + 6 < told <= time.time() + 7


async def test_a_hang_a_reset_and_a_cut_are_what_the_client_calls_them(
    server: OpenAIServer, client: AsyncOpenAI
) -> None:
    server.on().hang().once()
    with pytest.raises(openai.APITimeoutError):
        await ask(client, timeout=3.0)
    server.on().drop().once()
    with pytest.raises(openai.APIConnectionError):
        await ask(client)
    server.on().text("some words", quirk="cut").once()
    with pytest.raises(openai.APIConnectionError):
        await ask(client)
    assert [r.outcome for r in server.requests] == ["hang", "drop", "cut"]


async def test_bodies_that_are_no_completion_reach_the_client_as_they_are(
    server: OpenAIServer, client: AsyncOpenAI
) -> None:
    server.on().text("some words", quirk="garbage").once()
    with pytest.raises(ValueError, match=r"Expecting value|Unterminated"):
        await ask(client)
    server.on().fail(502, raw="<html>bad gateway</html>").once()
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client)
    assert caught.value.response.text == "<html>bad gateway</html>"
    server.on().fail(200, raw="<html>log in first</html>").once()
    assert "log in first" in await ask(client)


async def test_a_prompt_over_the_limit_is_refused_by_a_true_count() -> None:
    count = load_counter("gpt-4o").count
    async with (
        OpenAIServer(max_context=60, count=count) as server,
        AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0) as client,
    ):
        server.on().text("ok")
        word = "strawberry "  # 3 tokens in o200k_base at a text's start, 2 or fewer after it
        short = (await ask(client, [{"role": "user", "content": word * 10}])).usage
        assert short.prompt_tokens == 3 + 3 + count("user") + count(word * 10)
        error = await refused(client, [{"role": "user", "content": word * 100}])
        assert (error.code, error.param) == ("context_length_exceeded", "messages")
        assert f"resulted in {3 + 3 + count('user') + count(word * 100)} tokens" in error.message
        assert server.violations == []


# -- ends: API reference, "The chat completion object" --------------------------------------------------------------


async def test_an_answer_ends_in_each_way_that_the_reference_names(server: OpenAIServer, client: AsyncOpenAI) -> None:
    for reason in ("length", "content_filter"):
        server.on().text("half a", finish=reason).once()
        server.on().text("half a", finish=reason).once()
        assert (await ask(client)).choices[0].finish_reason == reason
        assert (await stream(client, stream_options=None))[-1].choices[0].finish_reason == reason
    server.on().refuse("I will not")
    message = (await ask(client)).choices[0].message
    assert (message.content, message.refusal) == (None, "I will not")
    pieces = [c.choices[0].delta.refusal or "" for c in await stream(client) if c.choices]
    assert "".join(pieces) == "I will not"


async def test_an_answer_may_be_empty(server: OpenAIServer, client: AsyncOpenAI) -> None:
    server.on().text("")
    assert (await ask(client)).choices[0].message.content == ""


# -- streams: API reference, "Streaming"; the event stream specification ---------------------------------------------


@pytest.mark.parametrize("quirk", [None, "crlf", "comments", "no_done", "empty_choices", "reasoning"])
async def test_a_stream_is_read_whole_whatever_its_lines_are(
    server: OpenAIServer, client: AsyncOpenAI, quirk: str | None
) -> None:
    server.on().text("one two three", quirk=quirk)
    chunks = await stream(client)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two three"
    assert chunks[-1].usage is not None


async def test_a_stream_drips_at_its_pace(server: OpenAIServer, client: AsyncOpenAI) -> None:
    server.on().text("one two three", pace=0.02)
    begun = time.monotonic()
    chunks = await stream(client)
    assert time.monotonic() - begun >= 0.02 * (len(chunks) - 1)


@pytest.mark.parametrize(
    ("quirk", "error"),
    [
        ("stall", openai.APIError),
        ("cut", openai.APIError),
        ("error_event", openai.APIError),
        ("garbage", ValueError),
    ],
)
async def test_a_stream_breaks_after_the_chunk_that_is_named(
    server: OpenAIServer, client: AsyncOpenAI, quirk: str, error: type[Exception]
) -> None:
    server.on().text("one two three four", quirk=quirk, at=3)
    seen = 0

    async def read() -> None:
        nonlocal seen
        async for _ in await ask(client, stream=True, timeout=3.0 if quirk == "stall" else 30.0):
            seen += 1

    with pytest.raises((error, OSError)):
        await read()
    assert seen == 3


async def test_a_bare_error_in_a_stream_is_passed_over_by_the_client(server: OpenAIServer, client: AsyncOpenAI) -> None:
    server.on().text("one two three four", quirk="bare_error", at=2)
    chunks = await stream(client)
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None, None]


@pytest.mark.parametrize(
    ("usage", "carriers"), [("full", 1), ("null", 0), ("missing", 0), ("cumulative", 5), ("in_last", 1)]
)
async def test_usage_stands_where_the_script_says(
    server: OpenAIServer, client: AsyncOpenAI, usage: str, carriers: int
) -> None:
    server.on().text("one two three", usage=usage, cached=2)
    chunks = await stream(client)
    told = [c.usage for c in chunks if c.usage is not None]
    assert len(told) == carriers
    assert bool(chunks[-1].choices) is (usage not in ("full", "null"))
    if told:
        assert told[-1].completion_tokens == 3
        assert told[-1].prompt_tokens_details is not None
        assert told[-1].prompt_tokens_details.cached_tokens == 2


def fragments(chunks: list[ChatCompletionChunk]) -> list[tuple[int | None, str | None]]:
    return [(t.index, t.id) for c in chunks if c.choices for t in c.choices[0].delta.tool_calls or []]


async def test_fragments_of_calls_carry_index_and_id_as_the_script_says(
    server: OpenAIServer, client: AsyncOpenAI
) -> None:
    seen = {}
    for quirk in (None, "no_index", "some_index", "same_index", "late_id", "null_id"):
        server.on().tools(("add", {"a": 1}), ("add", {"a": 2}), quirk=quirk).once()
        seen[quirk] = fragments(await stream(client, tools=[TOOL]))
    ids = [i for _, i in seen[None] if i]
    assert [index for index, _ in seen[None]] == [0, 1, 0, 1, 0, 1][: len(seen[None])]  # interleaved
    assert len(ids) == 2
    assert {index for index, _ in seen["no_index"]} == {None}
    assert {index for index, _ in seen["some_index"]} == {0, None}
    assert {index for index, _ in seen["same_index"]} == {0}
    assert [i is None for _, i in seen["late_id"]][:4] == [True, True, False, False]
    assert {"null"} <= {i for _, i in seen["null_id"]}


# -- embeddings: API reference, "Create embeddings" ------------------------------------------------------------------


async def test_embeddings_are_the_same_every_time_and_close_for_close_texts(
    server: OpenAIServer, client: AsyncOpenAI
) -> None:
    texts = ["slow queries on shop", "slow queries of shop", "the weather in Oslo"]
    first = await client.embeddings.create(model="embed", input=texts, dimensions=64)
    again = await client.embeddings.create(model="embed", input=texts, dimensions=64)
    vectors = [d.embedding for d in first.data]
    assert vectors == [d.embedding for d in again.data]
    assert [len(v) for v in vectors] == [64, 64, 64]
    near, far = (sum(a * b for a, b in zip(vectors[0], other, strict=True)) for other in vectors[1:])
    assert near > far
    assert math.isclose(sum(v * v for v in vectors[0]), 1.0, rel_tol=1e-5)
    with pytest.raises(openai.BadRequestError):
        await client.embeddings.create(model="embed", input=[""])
