"""The chat platforms that the settings name."""

from __future__ import annotations

import pytest

from adapters.chat import Delivered, Inbound, Message, Reply
from bot.platforms import build_adapters, list_bots
from bot.settings import Settings
from tests.servers.discord import DiscordServer


@pytest.mark.parametrize(("platform", "heard"), [("slack", ("B1", "B3")), ("discord", ("B1", "B2"))])
def test_another_bot_is_heard_on_its_own_platform_or_on_every_one(platform: str, heard: tuple[str, ...]) -> None:
    settings = Settings.model_validate({"access": {"bots": ["B1", "discord:B2", "Slack:B3"]}})
    assert list_bots(settings, platform) == heard


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_secret_in_a_question_does_not_become_the_name_of_its_thread(restarted: bool) -> None:
    """A person can delete the message, but hardly the name that everybody sees beside the channel."""
    said: list[Inbound] = []

    async def accept(inbound: Inbound) -> bool:
        said.append(inbound)
        return True

    async with DiscordServer() as server:
        discord = {"token": server.token, "api_url": server.base_url, "gateway_url": server.gateway_url}
        settings = Settings.model_validate({"discord": discord})
        first, second = build_adapters(settings)["discord"], build_adapters(settings)["discord"]
        try:
            await first.start(accept)
            await server.mention("why is " + "x" * 60 + " postgres://app:hunter2hunter2@db/shop slow?")
            await server.wait_until(lambda: said)
            (question,) = said
            assert isinstance(question, Message)
            poster = second if restarted else first
            assert isinstance(await poster.post(Reply(thread=question.thread, text="So.", key="r/1")), Delivered)
            (thread,) = server.threads()
            assert thread["name"].startswith("why is xxx")
            assert "hunter2" not in thread["name"]
        finally:
            await first.stop()
            await second.stop()
