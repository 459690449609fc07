"""Random histories as a thread could hold them, and what trimming, cancelling and crashing make of them."""

from __future__ import annotations

import random

from agent_core.llm.types import ModelMessage, ToolCall


def random_history(rng: random.Random, *, turns: int | None = None) -> list[ModelMessage]:
    """A valid history: questions, tool rounds with one to four parallel calls, answers."""
    history: list[ModelMessage] = []
    number = 0
    for _ in range(turns if turns is not None else rng.randint(1, 6)):
        for _ in range(rng.choice([1, 1, 1, 2])):
            history.append(
                ModelMessage(role="user", content="q" * rng.randint(0, 40), speaker=rng.choice([None, "alice"]))
            )
        for _ in range(rng.randint(0, 3)):
            calls = []
            for _ in range(rng.randint(1, 4)):
                number += 1
                # ids may come back in another turn, as some providers number from one in each answer
                calls.append(ToolCall(id=f"c{rng.choice([number, number % 3])}", name="t", arguments="{}"))
            history.append(
                ModelMessage(role="assistant", content=rng.choice(["", "let me look"]), tool_calls=tuple(calls))
            )
            history += [ModelMessage(role="tool", content="r" * rng.randint(0, 200), tool_call_id=c.id) for c in calls]
        history.append(ModelMessage(role="assistant", content="a" * rng.randint(1, 60)))
    return history


def damage(rng: random.Random, history: list[ModelMessage]) -> list[ModelMessage]:
    """What a cut, a crash, a cancellation, a lost row or a late message makes of a history."""
    damaged = list(history)
    for _ in range(rng.randint(1, 4)):
        if not damaged:
            break
        at = rng.randrange(len(damaged))
        match rng.randrange(6):
            case 0:
                damaged = damaged[at:]
            case 1:
                damaged = damaged[: at + 1]
            case 2:
                del damaged[at]
            case 3:
                damaged.insert(at, ModelMessage(role="user", content="and one more thing"))
            case 4:
                damaged.insert(at, damaged[at])
            case 5:
                damaged[at], damaged[-1] = damaged[-1], damaged[at]
    return [*damaged, ModelMessage(role="user", content="are you there?")]
