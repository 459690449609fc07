"""Models and workers as the settings say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from agent_core.errors import AllProvidersFailed
from agent_core.llm.breaker import BreakerState
from agent_core.llm.router import Router
from agent_core.llm.types import ModelMessage, ModelRequest
from agent_core.prompts import load_prompts
from bot.models import build_router, build_worker, load_templates
from bot.settings import load_settings
from bot.settings_tree import WorkerSettings
from tests.servers.openai import OpenAIServer
from tests.unit.engine.running import HandClock

ASKED = ModelRequest(messages=(ModelMessage(role="user", content="hi"),), timeout_s=200.0)


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


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(models=()) as running:
        yield running


@asynccontextmanager
async def routing(folder: Path, server: OpenAIServer, text: str, clock: HandClock) -> AsyncIterator[Router]:
    """The router that these settings make; every model is at the local server."""
    path = folder / "hermod.toml"
    path.write_text(text.replace("HERE", f'base_url = "{server.base_url}"'))
    settings = load_settings(path, {})
    router = build_router(settings, settings.effective_models({}), clock)
    async with aclosing(router):
        yield router


async def test_attempts_waits_and_breaker_are_those_of_the_settings(tmp_path: Path, server: OpenAIServer) -> None:
    server.on().fail(500)
    text = """
        [[models]]
        model = "only"
        HERE
        [router]
        max_attempts = 4
        backoff_base_s = 16
        backoff_cap_s = 20
        failure_threshold = 4
        recovery_timeout_s = 7
        """
    clock = HandClock()
    async with routing(tmp_path, server, text, clock) as router:
        with pytest.raises(AllProvidersFailed):
            await router.complete(ASKED)
        (state,) = router.states()
    assert len(server.requests) == 4
    assert 8 + 10 + 10 <= clock.seconds <= 16 + 20 + 20  # half of each wait is chance
    assert (state.state, state.failures, state.wait_s) == (BreakerState.OPEN, 4, 7.0)


async def test_priority_weight_and_timeout_are_those_of_the_settings(tmp_path: Path, server: OpenAIServer) -> None:
    server.on(model="hangs").hang()
    server.on(model="light").text("from the light one")
    server.on(model="heavy").text("from the heavy one")
    text = """
        [[models]]
        model = "heavy"
        weight = 1000000
        priority = 1
        HERE
        [[models]]
        model = "light"
        weight = 1e-9
        priority = 1
        HERE
        [[models]]
        model = "hangs"
        timeout_s = 0.3
        HERE
        """
    async with routing(tmp_path, server, text, HandClock()) as router:
        response = await router.complete(ASKED)
        assert (response.message.content, response.attempts) == ("from the heavy one", 2)
        assert "no answer within 0.3 s" in response.failures[0]


def test_templates_of_reports_are_no_prompts(tmp_path: Path) -> None:
    """A folder with a report's template of its own stopped every start."""
    (tmp_path / "report-daily-database.md").write_text("# title\n")
    settings = load_settings(None, {"HERMOD_PROMPTS__FOLDER": str(tmp_path)})
    assert load_templates(settings).keys() == load_prompts().keys()
