"""Anthropic's Messages API, natively (extra ``anthropic``)."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

from agent_core.errors import ConfigError
from agent_core.llm import anthropic_wire
from agent_core.llm.vendor import VendorProvider


class Anthropic(VendorProvider):
    """Messages over one base URL (with or without ``/v1``); the arguments are ``VendorProvider``'s.

    Raises:
        ConfigError: on first use, when the SDK is not installed.
    """

    PATH: ClassVar[str] = "/v1/messages"
    WIRE: ClassVar[ModuleType] = anthropic_wire

    def _import(self) -> ModuleType:
        try:
            import anthropic
        except ImportError as error:
            raise ConfigError('models of kind "anthropic" need: pip install "hermod-bot[anthropic]"') from error
        return anthropic

    def _open(self, sdk: ModuleType, http: object) -> Any:
        base_url = self.base_url and self.base_url.rstrip("/").removesuffix("/v1")
        # The version of the API is ours and not the SDK's: since 2026-10-21 a temperature is refused for every model.
        # The key goes the way that proxies know too, which the SDK has left.
        headers = {"anthropic-version": "2023-06-01", "x-api-key": self.api_key, "Authorization": sdk.Omit()}
        options = {"max_retries": 0, "http_client": http, "open_telemetry": False}  # spans are the engine's own
        return sdk.AsyncAnthropic(api_key=self.api_key or "none", base_url=base_url, default_headers=headers, **options)
