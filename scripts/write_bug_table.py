"""Write docs/bug-rows.md: public bugs of other agent programs, and the tests that keep them out of this one.

Run it as ``python -m scripts.write_bug_table``. ``tests/unit/docs/test_bug_rows.py`` fails when the page is out of
date, or when a row has neither a test nor a reason. A test belongs to row N when its name begins with ``test_bug_N_``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "bug-rows.md"
_NAME = re.compile(r"test_bug_(\d+)_(\w+)")


@dataclass(frozen=True, slots=True)
class BugRow:
    """A bug that somebody else had.

    Args:
        links: where it was reported: ``owner/repo#number`` on GitHub.
        symptom: what people saw, in our words.
        why_not: why there is no test, and what one would need; empty where there is one.
    """

    links: tuple[str, ...]
    symptom: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class FoundTest:
    """A test of a row: its file, from the root of the repository, and its name."""

    path: str
    name: str


def _row(links: str, symptom: str, why_not: str = "") -> BugRow:
    return BugRow(tuple(links.split()), symptom, why_not)


ROWS: Sequence[BugRow] = (
    _row("BerriAI/litellm#10696", "trimming kept calls and dropped their results; the model refused the whole thread"),
    _row("BerriAI/litellm#6505", "trimming removed tool results although everything fitted"),
    _row("langchain-ai/langchain#38352", "a cut kept a run of results as soon as one of them had its call"),
    _row("langchain-ai/langchain#34282 langchain-ai/langchain#34288", "a summary swallowed a call and left its result"),
    _row("pydantic/pydantic-ai#7977", "cancelling during the first tool left a history that no model took any more"),
    _row("openai/openai-agents-python#4827", "resuming after an approval stored the output without its call"),
    _row("openai/openai-agents-python#4125", "a guard that tripped deleted a call whose effect had happened already"),
    _row("openai/openai-agents-python#2664", "orphans were repaired when a run was resumed, not while it ran"),
    _row("langchain-ai/open-swe#1604", "a process died inside a tool; every later message of the thread was refused"),
    _row("pydantic/pydantic-ai#161", "one invalid call among several, and only that one got an answer"),
    _row("pydantic/pydantic-ai#6581", "the retry budget of a tool began anew when another tool ran in between"),
    _row("pydantic/pydantic-ai#4325", "an unknown tool used up the budget of the valid calls beside it"),
    _row("langchain-ai/langgraph#7412", "one of several parallel tools raised, and the others' results were lost"),
    _row("langchain-ai/langgraph#6486", "what happens to a tool's error by default changed between two versions"),
    _row("openai/openai-agents-python#2386", "a blocking tool stopped the event loop, and with it everybody else"),
    _row("openai/openai-agents-python#2346", "one hung tool held up the whole turn"),
    _row("MervinPraison/PraisonAI#2957", "the timeout setting was never read, and errors could not be told apart"),
    _row("langchain-ai/langgraph#7417", "a long tool was started again from a checkpoint while it still ran"),
    _row(
        "langchain-ai/langgraph#7988 langchain-ai/deepagents#4665", "a second tool of the same name replaced the first"
    ),
    _row("huggingface/smolagents#1958", "parallel calls streamed under one index were glued together"),
    _row("openai/openai-python#2806", "stream pieces without an index crashed or lost calls"),
    _row("QwenLM/Qwen-Agent#943", "interleaved pieces of parallel calls all went to the last one"),
    _row("langchain-ai/langchainjs#11373", 'the id "null" on a later piece was taken for a new call'),
    _row("pydantic/pydantic-ai#5260 pydantic/pydantic-ai#1736", "usage that grows with each chunk was added up"),
    _row("BerriAI/litellm#36168", "usage on the last chunk with a choice was dropped, cached tokens with it"),
    _row("XSpoonAi/spoon-core#179", "the chunk with the usage has no choices, and reading it crashed"),
    _row("cline/cline#13001 livekit/agents#4974", "arguments cut off at the output limit were repaired and executed"),
    _row("openai/openai-python#3555", "a long Retry-After was ignored, and the server asked again after half a second"),
    _row("huggingface/smolagents#2107", "every rate limit waited a fixed minute, whatever the server said"),
    _row("BerriAI/litellm#32574 BerriAI/litellm#35104", "only the first of several failing providers was noticed"),
    _row("BerriAI/litellm#40130", "a provider asked for more time and got the earlier, shorter end"),
    _row(
        "volcengine/OpenViking#3717 use-agent-os/agent-os#1862 getnora-io/nora#607",
        "a half-open breaker let everybody through, or lost its probe to a refusal or a cancellation",
    ),
    _row(
        "pydantic/pydantic-ai#4140 BerriAI/litellm#6957 BerriAI/litellm#19077",
        "a stream broke in the middle: no fallback, or two half answers glued together",
    ),
    _row(
        "openclaw/openclaw#126804 anomalyco/opencode#27924 MoonshotAI/kimi-code#836 PrimeIntellect-ai/prime-agent#900",
        "the history stayed too long after its summary, so it was summarised again, without end",
    ),
    _row("langchain-ai/langchain", "the text of a failed summary became the summary, and the history was gone"),
    _row(
        "pydantic/pydantic-ai#6569 google/adk-python#4919 langfuse/langfuse#13590",
        "a span was current across a yield; closing the stream elsewhere failed to detach its context",
    ),
    _row(
        "openai/openai-agents-python#4987 openai/openai-agents-python#4202 mem0ai/mem0#7196",
        "processes that started together found the database locked; a failed write kept its lock",
    ),
    _row(
        "mem0ai/mem0#3931 mem0ai/mem0#4437 mem0ai/mem0#1674 mem0ai/mem0#4536 mem0ai/mem0#4580",
        "a model chose ids of facts to delete: a fact told twice vanished, a contradiction deleted both",
    ),
    _row(
        "zilliztech/GPTCache#694 vllm-project/semantic-router#2691 BerriAI/litellm#12234 zilliztech/GPTCache#578",
        "the cache answered the opposite of a question, or an unrelated one",
    ),
    _row(
        "langchain-ai/langgraph#5943 enoch3712/ExtractThinker#327 repowise-dev/repowise#987",
        "reasoning models refused max_tokens and temperature, or got both limits",
    ),
    _row("Upsonic/Upsonic#323", "parallel_tool_calls was sent without tools, and refused"),
    _row(
        "openai/openai-agents-python#992 nerdai/llm-agents-from-scratch#861 generative-computing/mellea#1517",
        "strict was claimed for a schema that is not; defaults were lost; *args went wrong",
    ),
    _row(
        "openai/tiktoken#369 openai/tiktoken#513 lfnovo/open-notebook#622",
        "without a network the first token count raised a connection error",
    ),
    _row("openai/openai-python#1596 pydantic/httpx2#827", "the connection pool collapsed under many requests at once"),
    _row(
        "pydantic/pydantic-ai",
        "a success set the failure count of a tool back, and each new invented name had a budget of its own",
    ),
)
"""Row N is ``ROWS[N - 1]``. Links go to the issue or pull request; GitHub forwards between the two."""


def find_named(pattern: re.Pattern[str], root: Path = ROOT) -> Iterator[tuple[re.Match[str], FoundTest]]:
    """Yield every test whose whole name fits ``pattern``, by file and line, with the match."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in sorted(functions, key=lambda node: node.lineno):
            if match := pattern.fullmatch(node.name):
                yield match, FoundTest(path.relative_to(root).as_posix(), node.name)


def find_tests(root: Path = ROOT) -> Mapping[int, Sequence[FoundTest]]:
    """Find the tests of every row by their names, sorted by file and line."""
    found: defaultdict[int, list[FoundTest]] = defaultdict(list)
    for match, test in find_named(_NAME, root):
        found[int(match[1])].append(test)
    return found


def render_page(tests: Mapping[int, Sequence[FoundTest]]) -> str:
    """Return the text of the page."""
    tried = sum(1 for n in range(1, len(ROWS) + 1) if tests.get(n))
    return "\n".join([*_HEAD, f"{tried} of {len(ROWS)} rows have tests.", "", *_TABLE, *_lines(tests), ""])


def _lines(tests: Mapping[int, Sequence[FoundTest]]) -> Iterator[str]:
    for n, row in enumerate(ROWS, 1):
        links = ", ".join(map(_link, row.links))
        kept = describe_kept(_NAME, tests.get(n, ()), row.why_not)
        yield f"| {n} | {row.symptom} | {links} | {kept} |"


def describe_kept(pattern: re.Pattern[str], tests: Sequence[FoundTest], why_not: str) -> str:
    """Write the cell that says what keeps a bug out, by the last group of ``pattern``, or why nothing does."""
    said = (f"`{test.path}`: {pattern.sub(lambda m: m[m.re.groups].replace('_', ' '), test.name)}" for test in tests)
    return "<br>".join(said) or f"*no test:* {why_not}"


def _link(name: str) -> str:
    repository, _, number = name.partition("#")
    address = f"https://github.com/{repository}" + (f"/issues/{number}" if number else "")
    return f"[{repository.rpartition('/')[2]}{'#' if number else ''}{number}]({address})"


_HEAD = [
    "# Bugs that others had",
    "",
    "Agent programs fail in the same ways again and again. This is what people reported of other ones, and the tests",
    "that keep each of it out of Hermod. A test of row N is called `test_bug_N_...`; `pytest -k test_bug_N_` runs it.",
    "This page is written by `python -m scripts.write_bug_table`.",
    "",
]
_TABLE = ["| row | what people saw | reported in | tests |", "|--|--|--|--|"]


def write_page(page: Path, text: str) -> int:
    """Write a page if it changed; returns the exit code."""
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/{page.name} written\n")
    return 0


def main() -> int:
    """Write the page if it changed."""
    return write_page(PAGE, render_page(find_tests()))


if __name__ == "__main__":
    sys.exit(main())
