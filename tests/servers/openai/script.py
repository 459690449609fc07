"""The script of the model server: what it sees of a request, and the rules that answer it."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]  # wire data
UsageMode = Literal["full", "null", "missing", "cumulative", "in_last"]
"""Where the usage of an answer stands: in a chunk of its own at the end (OpenAI's way), as null, nowhere, on every
chunk as the sum so far (Qwen, DeepSeek), or on the last chunk that has a choice (several proxies)."""

Quirk = Literal[
    # what breaks an answer, after its chunk ``at``
    "stall",
    "cut",
    "garbage",
    "error_event",
    "bare_error",
    # what the event stream specification allows, and what ends differ in
    "crlf",
    "comments",
    "no_done",
    # what servers do to the pieces of an answer
    "reasoning",
    "empty_choices",
    "no_index",
    "some_index",
    "same_index",
    "late_id",
    "null_id",
]
RetryForm = Literal["both", "seconds", "date", "ms"]
"""How a failure says when to try again: ``Retry-After`` in seconds or as an HTTP date (RFC 9110, 10.2.3),
``retry-after-ms`` (OpenAI's own), or seconds and milliseconds together."""

WORD = re.compile(r"\w+|[^\w\s]")


def count_tokens(text: str) -> int:
    """A deterministic stand-in for a tokenizer (words and punctuation)."""
    return len(WORD.findall(text))


def text_of(message: Json) -> str:
    """Text of a message whose content is a string, a list of parts or null."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    return str(content or "")


@dataclass
class Request:
    """What a condition or a dynamic answer sees."""

    body: Json
    headers: dict[str, str]
    at: float
    outcome: str = ""  # "answered", "refused", "failed 429", "hang", "drop", "cut", ...; empty: the client left early

    def journal_entry(self) -> Json:
        """The request as data for the control port; the key itself is left out."""
        headers = {k: v for k, v in self.headers.items() if k != "authorization"}
        return {"at": self.at, "headers": headers, "body": self.body, "outcome": self.outcome}

    @property
    def messages(self) -> list[Json]:
        return list(self.body.get("messages", []))

    @property
    def tools(self) -> list[str]:
        return [t["function"]["name"] for t in self.body.get("tools") or [] if t.get("type") == "function"]

    @property
    def last_user(self) -> str:
        return next((text_of(m) for m in reversed(self.messages) if m["role"] == "user"), "")

    @property
    def last_said(self) -> str:
        """The newest question without the word before it on who wrote it and when."""
        return re.sub(r"^(?:\[[^\]]*\] )?\([^)]*\d{2}:\d{2} [A-Z]+\) ", "", self.last_user)

    @property
    def system(self) -> str:
        return "\n".join(text_of(m) for m in self.messages if m["role"] in ("system", "developer"))

    @property
    def step(self) -> int:
        """Assistant tool-call turns since the last user message: 0 at the first model call of a turn."""
        n = 0
        for m in reversed(self.messages):
            if m["role"] == "user":
                break
            n += m["role"] == "assistant" and bool(m.get("tool_calls"))
        return n

    @property
    def tool_results(self) -> dict[str, str]:
        """Results that follow the last user message, by tool name."""
        names: dict[str, str] = {}
        out: dict[str, str] = {}
        for m in self.messages:
            if m["role"] == "user":
                out = {}
            for c in m.get("tool_calls") or []:
                names[c["id"]] = c["function"]["name"]
            if m["role"] == "tool":
                out[names.get(m["tool_call_id"], "?")] = text_of(m)
        return out


@dataclass
class Call:
    name: str
    arguments: str  # JSON text as the model wrote it, possibly malformed


@dataclass
class Reply:
    text: str | None = None
    calls: list[Call] = field(default_factory=list)
    finish: str | None = None
    usage: UsageMode = "full"
    quirk: Quirk | None = None
    pace: float = 0.0  # seconds between streamed chunks
    refusal: str | None = None  # the model's own refusal, in the place of a text
    at: int = 3  # the chunk after which a quirk that breaks the answer does so
    cached: int = 0  # prompt tokens that the provider's own cache served


@dataclass
class Failure:
    status: int
    code: str
    message: str
    retry_after: float | None = None
    raw: str | None = None  # body sent as it is, e.g. a proxy's HTML page
    hang: bool = False  # never answer
    drop: bool = False  # reset the connection
    retry_form: RetryForm = "both"
    content_type: str = "text/html"  # of ``raw``
    param: str | None = None


Answer = Reply | Failure | Callable[[Request], Reply | Failure]


class Rule:
    """One scripted exchange. The answer methods return the rule, so its limits can be chained."""

    def __init__(self, when: list[Callable[[Request], bool]]) -> None:
        self.when, self.left, self.used, self.delay = when, math.inf, 0, 0.0
        self.wait: asyncio.Event | None = None  # answers are held back until it is set
        self.answer: Answer = Reply("ok")

    def text(self, text: str, **kw: Any) -> Rule:
        return self._set(Reply(text, **kw))

    def refuse(self, words: str, **kw: Any) -> Rule:
        """The model itself refuses (a structured output may end so): ``refusal`` in the place of ``content``."""
        return self._set(Reply(None, refusal=words, **kw))

    def json(self, value: Any, *, fence: bool = False, **kw: Any) -> Rule:
        raw = json.dumps(value)
        return self._set(Reply(f"Here it is:\n```json\n{raw}\n```" if fence else raw, **kw))

    def tools(self, *calls: tuple[str, Any], text: str | None = None, **kw: Any) -> Rule:
        """Parallel tool calls; an argument given as ``str`` is sent verbatim (malformed JSON)."""
        made = [Call(n, a if isinstance(a, str) else json.dumps(a)) for n, a in calls]
        return self._set(Reply(text, made, **kw))

    def dynamic(self, fn: Callable[[Request], Reply | Failure]) -> Rule:
        return self._set(fn)

    def fail(
        self,
        status: int = 500,
        code: str | None = None,
        message: str = "injected",
        *,
        retry_after: float | None = None,
        raw: str | None = None,
        times: int | None = None,
        retry_form: RetryForm = "both",
        content_type: str = "text/html",
        param: str | None = None,
    ) -> Rule:
        code = code or {429: "rate_limit_exceeded", 401: "invalid_api_key", 404: "model_not_found"}.get(
            status, "server_error"
        )
        failure = Failure(status, code, message, retry_after, raw)
        failure.retry_form, failure.content_type, failure.param = retry_form, content_type, param
        self._set(failure)
        return self.times(times) if times is not None else self

    def context_overflow(self, limit: int = 8192) -> Rule:
        def answer(r: Request) -> Failure:
            used = sum(count_tokens(text_of(m)) for m in r.messages)
            return Failure(
                400,
                "context_length_exceeded",
                f"This model's maximum context length is {limit} tokens. "
                f"However, your messages resulted in {used} tokens.",
            )

        return self._set(answer)

    def hang(self) -> Rule:
        return self._set(Failure(500, "", "", hang=True))

    def drop(self) -> Rule:
        return self._set(Failure(500, "", "", drop=True))

    def times(self, n: float) -> Rule:
        self.left = n
        return self

    def once(self) -> Rule:
        return self.times(1)

    def after(self, seconds: float) -> Rule:
        self.delay = seconds
        return self

    def _set(self, answer: Answer) -> Rule:
        self.answer = answer
        return self
