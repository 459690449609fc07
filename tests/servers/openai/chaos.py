"""Faults for a share of all requests, drawn from a seed so that the same run always meets the same ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from tests.servers.openai.script import Failure, Reply, Request

Fault = Literal["429", "500", "hang", "reset", "cut", "bad_json"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


@dataclass
class Chaos:
    """``rate`` of all requests fail in one of the ``faults``.

    The draw depends on the seed, on what is asked (the last user message and its step) and on how often the same was
    asked here before: not on the order in which runs arrive.
    """

    rate: float
    seed: str
    faults: tuple[Fault, ...] = FAULTS
    drawn: Counter[str] = field(default_factory=Counter)
    _asked: Counter[str] = field(default_factory=Counter)

    def apply(self, request: Request, answer: Reply | Failure) -> Reply | Failure:
        """The answer, or the fault that takes its place."""
        what = f"{request.last_said}\0{request.step}"
        self._asked[what] += 1
        rng = random.Random(f"{self.seed}\0{what}\0{self._asked[what]}")
        if isinstance(answer, Failure) or rng.random() >= self.rate:
            return answer
        fault = rng.choice(self.faults)
        self.drawn[fault] += 1
        match fault:
            case "429":
                wait_s = rng.choice([None, 0.0, 0.05])
                return Failure(429, "rate_limit_exceeded", "Rate limit reached. Please try again later.", wait_s)
            case "500":
                return Failure(500, "server_error", "The server had an error while processing your request. Sorry!")
            case "hang":
                return Failure(500, "", "", hang=True)
            case "reset":
                return Failure(500, "", "", drop=True)
            case "cut":
                return replace(answer, quirk="cut", at=rng.randint(1, 4))
            case "bad_json":
                return replace(answer, quirk=rng.choice(["garbage", "bare_error"]), at=rng.randint(1, 4))
