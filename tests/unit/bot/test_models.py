"""Models and workers as the settings say."""

from __future__ import annotations

import pytest

from bot.models import build_worker
from bot.settings_tree import WorkerSettings


@pytest.mark.parametrize(
    ("name", "given", "bounds"),
    [
        ("researcher", {"model": "big"}, (8, 12_000)),
        ("researcher", {"max_steps": 5}, (5, 12_000)),
        ("researcher", {"max_steps": 3, "memory_tokens": 900}, (3, 900)),
        ("capacity", {"description": "knows how full disks are"}, (5, 8_000)),
    ],
)
def test_what_a_table_of_a_built_in_worker_leaves_out_stays_as_it_was(
    name: str, given: dict[str, object], bounds: tuple[int, int]
) -> None:
    agent = build_worker(name, WorkerSettings.model_validate(given), ()).agent
    assert (agent.max_steps, agent.memory_tokens) == bounds
