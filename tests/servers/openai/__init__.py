"""A scripted OpenAI-compatible endpoint that the genuine openai client talks to.

It serves ``/v1/chat/completions`` (plain and streamed, parallel tool calls, usage), ``/v1/embeddings`` and
``/v1/models``. A *rule* pairs a condition on the request with what to answer; the first rule that matches and
has uses left wins. Rules see the whole conversation, so one script can play an agent of several steps::

    llm = OpenAIServer()
    llm.on(user="slow queries", step=0).tools(("slow_queries", {"limit": 5}), ("calculator", {"expression": "1+1"}))
    llm.on(user="slow queries", step=1).text("Two queries are slow.")
    llm.on().fail(429, retry_after=2, times=2)      # faults are rules too

Every request is kept in ``requests`` with what became of it, and checked against the protocol (each tool call answered
once, by id, right after it; strict schemas closed; no parameter that the model refuses): breaches get the 400 that
OpenAI gives and are noted in ``violations``. A reply may have a ``quirk`` (``stream.py``), the server a ``Chaos`` that
makes a seeded share of all requests fail. ``python -m tests.servers.openai`` runs it alone; see
``tests/servers/README.md``.
"""

from tests.servers.openai.chaos import FAULTS, Chaos, Fault
from tests.servers.openai.protocol import Refusal, embed, find_refusal, protocol_breach
from tests.servers.openai.script import Call, Failure, Reply, Request, Rule, count_tokens, text_of
from tests.servers.openai.server import OpenAIServer

__all__ = [
    "FAULTS",
    "Call",
    "Chaos",
    "Failure",
    "Fault",
    "OpenAIServer",
    "Refusal",
    "Reply",
    "Request",
    "Rule",
    "count_tokens",
    "embed",
    "find_refusal",
    "protocol_breach",
    "text_of",
]
