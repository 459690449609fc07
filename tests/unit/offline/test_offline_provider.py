"""What the offline provider does in a conversation."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.llm.offline import OfflineProvider
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, TextChunk, ToolCall, Usage
from agent_core.tools.registry import ToolRegistry
from tests.evals.scoring import FixedClock
from tests.evals.toolset import CORE, SLOW_ROWS, WIDE
from tests.stopwatch import least_cpu_s
from tests.unit.engine.running import Bench
from tests.unit.offline.talking import Thread, make_spec

SLOW = {"ok": True, "target": "shop", "engine": "postgresql", "rows": SLOW_ROWS, "warnings": []}
SLOWEST = {"sql": "SELECT * FROM orders WHERE note LIKE $1", "target": "shop"}


def user(text: str) -> ModelMessage:
    return ModelMessage(role="user", content=text)


async def test_every_kind_of_answer_says_that_no_language_model_was_used() -> None:
    thread = Thread(CORE, {"get_slow_queries": SLOW})
    for question in (
        "hello",
        "help",
        "thanks",
        "tell me a joke",
        "explain the query",
        "slow queries",
        "2+2",
        "slow sql last night",
    ):
        last = (await thread.ask(question)).splitlines()[-1]
        assert "No language model was used" in last, question
    for question in ("你好", "讲个笑话", "谢谢", "慢查询", "2加2等于几"):
        assert "未使用语言模型" in (await thread.ask(question)).splitlines()[-1], question


async def test_the_last_line_names_the_calls_so_that_a_wrong_match_is_seen() -> None:
    answer = await Thread(CORE).ask("what is 17 * 23 + 4?")
    assert answer.splitlines()[-1] == (
        "_No language model was used; I matched your words to `calculator(expression=17 * 23 + 4)`._"
    )


async def test_usage_is_zero_and_exact_and_names_are_stable() -> None:
    response = await OfflineProvider(FixedClock()).complete(ModelRequest(messages=(user("2+2"),), tools=CORE))
    assert response.usage == Usage(requests=1, exact=True)
    assert response.usage.total_tokens == 0
    assert (response.provider, response.model, response.finish) == ("offline", "offline", Finish.TOOL_CALLS)
    assert [c.id for c in response.message.tool_calls] == ["call_1"]


async def test_streaming_yields_the_answer_in_pieces_and_then_the_whole_response() -> None:
    request = ModelRequest(messages=(user("help"),), tools=CORE)
    items = [item async for item in OfflineProvider(FixedClock()).stream(request)]
    last = items[-1]
    assert isinstance(last, ModelResponse)
    pieces = [item.text for item in items[:-1] if isinstance(item, TextChunk)]
    assert len(pieces) > 3
    assert "".join(pieces) == last.message.content


async def test_without_tools_or_with_tool_choice_none_there_is_only_text() -> None:
    provider = OfflineProvider(FixedClock())
    none = await provider.complete(ModelRequest(messages=(user("2+2"),), tools=CORE, tool_choice="none"))
    assert (none.message.tool_calls, none.finish) == ((), Finish.STOP)
    empty = await provider.complete(ModelRequest(messages=(user("2+2"),)))
    assert empty.message.tool_calls == ()
    assert "No tools" in empty.message.content


async def test_results_are_laid_out_even_when_no_more_calls_are_allowed() -> None:
    thread = Thread(CORE)
    thread.history = [
        user("2+2"),
        ModelMessage(
            role="assistant", tool_calls=(ToolCall(id="x", name="calculator", arguments='{"expression":"2+2"}'),)
        ),
        ModelMessage(role="tool", content='{"ok":true,"expression":"2+2","result":4}', tool_call_id="x"),
    ]
    assert (await thread.request(tool_choice="none")).message.content.startswith("4\n")


async def test_an_empty_mention_gets_the_list_of_tools() -> None:
    for text in ("", "(empty message)", "   ", "<@U12345>"):
        assert "`calculator`" in await Thread(CORE).ask(text), text


async def test_a_missing_argument_is_asked_for_with_an_example_and_the_next_message_may_bring_it() -> None:
    thread = Thread(CORE)
    answer = await thread.ask("explain the plan of my query")
    assert thread.made == []
    assert "`explain_query`" in answer
    assert "`sql`" in answer
    assert "explain select * from orders where id = 1" in answer
    await thread.ask("select * from t where a = 1")
    assert thread.made == [("explain_query", {"sql": "select * from t where a = 1"})]


async def test_an_answer_to_the_question_for_a_missing_argument_completes_the_first_message() -> None:
    thread = Thread(WIDE)
    assert "`city`" in await thread.ask("what's the weather?")
    await thread.ask("Oslo")
    assert thread.made == [("get_weather", {"city": "Oslo"})]


async def test_a_time_that_cannot_be_placed_is_asked_for_instead_of_being_left_out() -> None:
    thread = Thread(CORE)
    answer = await thread.ask("slow queries on billing last night")
    assert thread.made == []
    assert "“last night”" in answer
    await thread.ask("the last 12 hours")
    assert thread.made == [("get_slow_queries", {"time_range": "last_12h", "target": "billing"})]


async def test_a_target_that_is_not_configured_is_handed_to_the_tool() -> None:
    assert await Thread(CORE).calls("slow queries on warehouse") == [("get_slow_queries", {"target": "warehouse"})]


async def test_a_row_is_taken_from_the_newest_result_that_has_the_column() -> None:
    thread = Thread(CORE, {"get_slow_queries": SLOW})
    await thread.ask("slow queries")
    await thread.ask("2+2")
    await thread.ask("explain the slowest one")
    assert thread.made == [("explain_query", SLOWEST)]


async def test_of_two_results_with_rows_the_newer_one_counts() -> None:
    thread = Thread(CORE, {"get_slow_queries": SLOW})
    await thread.ask("slow queries")
    thread.results["get_slow_queries"] = {
        "ok": True,
        "target": "billing",
        "rows": [{"sql": "SELECT 2", "duration": 1.0}],
    }
    await thread.ask("slow queries on billing")
    assert await thread.calls("explain the slowest one") == [
        ("explain_query", {"sql": "SELECT 2", "target": "billing"})
    ]


async def test_a_row_that_does_not_exist_is_said_to_be_missing() -> None:
    thread = Thread(CORE, {"get_slow_queries": SLOW})
    await thread.ask("slow queries")
    answer = await thread.ask("explain row 9")
    assert thread.made == []
    assert "no row 9" in answer


async def test_a_part_that_needs_the_rows_of_another_waits_for_them() -> None:
    thread = Thread(CORE, {"get_slow_queries": SLOW})
    answer = await thread.ask("show slow queries of the last hour and explain the slowest one")
    assert thread.made == [("get_slow_queries", {"time_range": "last_1h"}), ("explain_query", SLOWEST)]
    assert "**get_slow_queries**" in answer
    assert "**explain_query**" in answer


async def test_the_names_of_attached_files_are_no_words_of_the_question() -> None:
    question = "what is 2**10?\n[attached file: slow plans of orders.txt, 15 B]"
    assert await Thread(CORE).calls(question) == [("calculator", {"expression": "2**10"})]


async def test_a_part_that_waits_for_rows_that_never_come_is_told_so() -> None:
    thread = Thread(CORE, {"get_slow_queries": {"ok": True, "rows": []}})
    answer = await thread.ask("show slow queries of the last hour and explain the slowest one")
    assert thread.made == [("get_slow_queries", {"time_range": "last_1h"})]
    assert "No rows." in answer
    assert "no earlier result" in answer


async def test_a_follow_up_works_although_the_history_lost_the_calls() -> None:
    thread = Thread(CORE)
    thread.history = [
        user("slow queries on shop in the last hour"),
        ModelMessage(role="assistant", content="(a table)"),
    ]
    assert await thread.calls("and for billing?") == [
        ("get_slow_queries", {"time_range": "last_1h", "target": "billing"})
    ]


async def test_several_messages_of_one_turn_are_all_answered() -> None:
    thread = Thread(CORE)
    thread.history = [user("slow queries on shop")]
    assert await thread.calls("what is 2 + 2?") == [
        ("get_slow_queries", {"target": "shop"}),
        ("calculator", {"expression": "2 + 2"}),
    ]


async def test_failed_calls_are_answered_not_repeated() -> None:
    failure = {"ok": False, "error": {"code": "connect_failed", "message": "shop is down", "fix": "start it"}}
    thread = Thread(CORE, {"get_slow_queries": failure})
    answer = await thread.ask("slow queries")
    assert len(thread.made) == 1
    assert "shop is down" in answer
    assert "start it" in answer


async def test_a_tool_registered_by_a_test_is_reached_by_its_spec_alone() -> None:
    made: list[tuple[str, int]] = []

    def scale_service(service: str, replicas: int = 1) -> str:
        """Scale a service to a number of replicas.

        Args:
            service: its name.
            replicas: how many.
        """
        made.append((service, replicas))
        return f"{service} has {replicas} replicas now"

    registry = ToolRegistry()
    registry.register(scale_service)
    bench = Bench(OfflineProvider(FixedClock()), registry=registry)
    record = await bench.ask("scale the service checkout to 3 replicas")
    assert made == [("checkout", 3)]
    assert record.answer.startswith("checkout has 3 replicas now")


async def test_the_same_request_always_gets_the_same_response() -> None:
    request = ModelRequest(messages=(user("slow queries on shop and billing today, and 3*4"),), tools=WIDE)
    first = await OfflineProvider(FixedClock()).complete(request)
    assert len(first.message.tool_calls) == 3
    assert first == await OfflineProvider(FixedClock()).complete(request)


WORDS = st.sampled_from(
    [
        "slow",
        "queries",
        "explain",
        "the",
        "slowest",
        "one",
        "last",
        "hour",
        "2",
        "*",
        "3",
        "time",
        "in",
        "Tokyo",
        "and",
        "what",
        "about",
        "billing",
        "?",
        ";",
        ".",
        ",",
        "慢查询",
        "最近",
        "一小时",
        "和",
        "解释",
        "第二条",
        "现在",
        "几点",
        "select",
        "*",
        "from",
        "orders",
        "where",
        "`",
        "```",
        '"',
        "'",
        "(",
        ")",
        ">",
        "5s",
        "row",
        "2",
        "it",
        "again",
        "help",
        "last",
        "night",
        "%",
        "1,000",
        "-",
        "/",
        "on",
        "shop",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=14).map(" ".join), min_size=1, max_size=4), st.integers(0, 2))
async def test_no_conversation_fails_or_goes_on_calling(questions: list[str], which: int) -> None:
    thread = Thread(WIDE, {"get_slow_queries": [SLOW, "plain text", {"ok": True, "rows": []}][which]})
    for question in questions:
        answer = await thread.ask(question)
        assert "anguage model" in answer or "语言模型" in answer
        assert len(thread.made) <= 12


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
async def test_any_text_gets_a_response_whose_arguments_are_json_objects(text: str) -> None:
    response = await OfflineProvider(FixedClock()).complete(ModelRequest(messages=(user(text),), tools=WIDE))
    for call in response.message.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
    assert response.message.tool_calls or response.message.content


@pytest.mark.parametrize(
    "piece", ["a ", "1 + ", "((((", "last ", "select ", "，", "`", "9" * 50 + " ", "on x ", "half an ", "一"]
)
def test_sixty_kilobytes_of_anything_are_read_in_bounded_time(piece: str) -> None:
    request = ModelRequest(messages=(user(piece * (60_000 // len(piece))),), tools=WIDE)
    provider = OfflineProvider(FixedClock())
    assert least_cpu_s(lambda: asyncio.run(provider.complete(request)), enough_s=0.5) <= 0.5


def test_a_question_against_twenty_tools_takes_less_than_five_milliseconds() -> None:
    extra = [
        make_spec(f"tool_{n}", f"Does thing number {n} with widgets.", {"name": {"type": "string"}}) for n in range(8)
    ]
    tools = (*WIDE, *extra)[:20]
    provider = OfflineProvider(FixedClock())
    request = ModelRequest(
        messages=(user("which queries on shop were slower than 2 s in the last hour?"),), tools=tools
    )
    asyncio.run(provider.complete(request))  # the first question costs more
    assert min(least_cpu_s(lambda: asyncio.run(provider.complete(request)), enough_s=0.005) for _ in range(5)) < 0.005
