"""Answers by ``response_url``: the address that comes with a command, good for five uses within half an hour.

docs.slack.dev/interactivity/handling-user-interaction (message responses). The address is a secret: whoever has it
can write into the channel, so it appears in no log and no reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from adapters.chat import InDoubt, Rejected, RetryLater
from adapters.slack.client import SlackClient, find_proxy
from adapters.slack.outcome import CALL_ERRORS, Failed, build_failed
from adapters.slack.surface import Block

USES = 5
LIFETIME_S = 1_800.0
MOST_KNOWN = 10_000
HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})


class ResponseUrls:
    """Posts to ``response_url`` and keeps count of the uses. Safe to call concurrently.

    Args:
        client: whose connections are used.
        monotonic: the clock of an address's age, which begins when it is first seen.
    """

    def __init__(self, client: SlackClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._uses: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def usable(self, url: str) -> bool:
        """True while the address may still take a post, as far as this process knows."""
        uses, since = self._uses.get(url, (0, self._monotonic()))
        return self._may_ask(url) and uses < USES and self._monotonic() - since < LIFETIME_S

    async def post(self, url: str, *, text: str, blocks: Sequence[Block], private: bool) -> Failed | None:
        """Post once; None when Slack took it.

        A refused use counts too. An address that is used up or too old is refused with the code ``used_url``.
        """
        if not self.usable(url):
            return Failed(code="used_url", said="the address is used up", outcome=Rejected(reason="used up"))
        uses, since = self._uses.pop(url, (0, self._monotonic()))
        self._uses[url] = (uses + 1, since)
        while len(self._uses) > MOST_KNOWN:
            self._uses.popitem(last=False)
        body: dict[str, object] = {
            "text": text,
            "response_type": "ephemeral" if private else "in_channel",
            "replace_original": False,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        if blocks:
            body["blocks"] = list(blocks)
        return await self._send(url, body)

    async def _send(self, url: str, body: dict[str, object]) -> Failed | None:
        try:
            async with self._client.session.post(
                url, json=body, allow_redirects=False, proxy=find_proxy(url)
            ) as answer:
                said = (await answer.text())[:200]
                status = answer.status
        except CALL_ERRORS as error:
            return build_failed(error)
        if status == 200:
            return None
        if status == 429:
            return Failed(code="ratelimited", said="Slack asks to wait", outcome=RetryLater(after_s=1.0, reason="429"))
        if status >= 500:
            return Failed(code="", said=f"HTTP {status}", outcome=InDoubt(reason=f"Slack failed (HTTP {status})"))
        code = next((word for word in ("used_url", "expired_url", "invalid_blocks", "no_text") if word in said), "")
        return Failed(code=code, said=f"HTTP {status} {code}", outcome=Rejected(reason=f"HTTP {status} {code}"))

    def _may_ask(self, url: str) -> bool:
        """Only Slack's own hosts, and where the Web API itself is: the address came in with a payload."""
        try:
            parts, api = urlsplit(url), urlsplit(self._client.api_url)
            own = (parts.scheme, parts.hostname, parts.port) == (api.scheme, api.hostname, api.port)
        except ValueError:
            return False
        return own or (parts.scheme == "https" and parts.hostname in HOSTS)
