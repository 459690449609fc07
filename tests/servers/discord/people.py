"""What humans do."""

from __future__ import annotations

import secrets
import time
from typing import Any

from tests.servers.discord.gateway import Gateway
from tests.servers.discord.model import ALL_PERMISSIONS, GUILD_REACTIONS, Interaction, Json
from tests.servers.discord.rules import _components


class People(Gateway):
    # ------------------------------------------------------------------ what humans do
    async def say(
        self,
        content: str,
        *,
        channel: str | None = None,
        user: str | None = None,
        files: dict[str, bytes] | None = None,
        reply_to: str | None = None,
    ) -> str:
        body: Json = {"content": content}
        if reply_to:
            body["message_reference"] = {"message_id": reply_to}
        msg = self._new_message(channel or self.general, user or self.alice, body, files or {})
        await self._announce(msg)
        return str(msg["id"])

    async def mention(self, content: str, **kw: Any) -> str:
        return await self.say(f"<@{self.bot_id}> {content}", **kw)

    async def edit(self, message: str, content: str, *, channel: str | None = None) -> None:
        msg = self._find(channel or self.general, message)
        self._update(msg, {"content": content})
        await self._announce(msg, "MESSAGE_UPDATE")

    async def react(self, message: str, emoji: str, *, channel: str | None = None, user: str | None = None) -> None:
        cid, uid = channel or self.general, user or self.alice
        self.reactions.add((message, emoji, uid))
        await self._dispatch(
            "MESSAGE_REACTION_ADD",
            {
                "user_id": uid,
                "channel_id": cid,
                "message_id": message,
                "guild_id": self.guild_id,
                "type": 0,
                "burst": False,
                "member": self._member(uid),
                "emoji": {"id": None, "name": emoji},
                "message_author_id": self._find(cid, message)["author"]["id"],
            },
            GUILD_REACTIONS,
        )

    async def slash(
        self,
        name: str,
        options: Json | None = None,
        *,
        channel: str | None = None,
        user: str | None = None,
        wait: bool = True,
    ) -> Interaction:
        """Invoke a registered command; ``name`` may be 'group sub'. Waits for the first response."""
        return await self._invoke(2, name, options or {}, channel, user, None, wait)

    async def autocomplete(
        self, name: str, focused: str, value: str, options: Json | None = None, **kw: Any
    ) -> list[Json]:
        it = await self._invoke(
            4, name, {**(options or {}), focused: value}, kw.get("channel"), kw.get("user"), focused, True
        )
        return it.choices or []

    async def click(
        self,
        message: str,
        custom_id: str,
        *,
        channel: str | None = None,
        user: str | None = None,
        values: list[str] | None = None,
        wait: bool = True,
    ) -> Interaction:
        """Press a button, or pick ``values`` in a select, of a message."""
        cid = channel or self.general
        msg = self._find(cid, message)
        part = next((c for c in _components(msg.get("components", [])) if c.get("custom_id") == custom_id), None)
        if part is None:
            raise LookupError(f"no component {custom_id!r}")
        if part.get("disabled"):
            raise LookupError(f"component {custom_id!r} is disabled")
        data = {
            "custom_id": custom_id,
            "component_type": part["type"],
            "id": part.get("id", 1),
            **({"values": values} if values else {}),
        }
        return await self._interact(3, data, cid, user or self.alice, wait, source=message)

    async def submit_modal(self, of: Interaction, values: dict[str, str], *, wait: bool = True) -> Interaction:
        if of.modal is None:
            raise LookupError("that interaction opened no modal")
        rows = [
            {"type": 1, "id": i + 1, "components": [{"type": 4, "id": i + 90, "custom_id": k, "value": v}]}
            for i, (k, v) in enumerate(values.items())
        ]
        return await self._interact(
            5, {"custom_id": of.modal["custom_id"], "components": rows}, of.channel, of.user, wait
        )

    async def _invoke(
        self,
        kind: int,
        name: str,
        options: Json,
        channel: str | None,
        user: str | None,
        focused: str | None,
        wait: bool,
    ) -> Interaction:
        root, *path = name.split()
        known = [*self.commands.get(self.guild_id, []), *self.commands["global"]]
        command = next((c for c in known if c["name"] == root and c.get("type", 1) == 1), None)
        if command is None:
            raise LookupError(f"/{root} is not registered")
        leaf, nest = command, []
        for step in path:
            leaf = next(o for o in leaf.get("options", []) if o["name"] == step)
            nest.append(leaf)
        spec = {o["name"]: o for o in leaf.get("options", [])}
        missing = [n for n, o in spec.items() if o.get("required") and n not in options]
        if (missing and kind == 2) or set(options) - set(spec):
            raise LookupError(f"options of /{name}: missing {missing}, unknown {set(options) - set(spec)}")
        sent = [
            {"name": k, "type": spec[k]["type"], "value": v, **({"focused": True} if k == focused else {})}
            for k, v in options.items()
        ]
        for step in reversed(nest):
            sent = [{"name": step["name"], "type": step["type"], "options": sent}]
        data = {"id": command["id"], "name": root, "type": 1, "options": sent, "guild_id": command.get("guild_id")}
        return await self._interact(kind, data, channel or self.general, user or self.alice, wait)

    async def _interact(
        self, kind: int, data: Json, channel: str, user: str, wait: bool, source: str | None = None
    ) -> Interaction:
        it = Interaction(self.snowflake(), secrets.token_urlsafe(48), kind, channel, user, time.monotonic(), source)
        self.interactions[it.token] = it
        body: Json = {
            "id": it.id,
            "application_id": self.app_id,
            "type": kind,
            "data": data,
            "token": it.token,
            "version": 1,
            "guild_id": self.guild_id,
            "guild": {"id": self.guild_id, "locale": "en-US", "features": []},
            "channel_id": channel,
            "channel": self.channels[channel] | {"permissions": ALL_PERMISSIONS},
            "member": self._member(user) | {"permissions": ALL_PERMISSIONS},
            "app_permissions": ALL_PERMISSIONS,
            "locale": "en-US",
            "guild_locale": "en-US",
            "entitlements": [],
            "context": 0,
            "authorizing_integration_owners": {"0": self.guild_id},
            "attachment_size_limit": 10 * 2**20,
        }
        if source:
            body["message"] = self._find(channel, source)
        await self._dispatch("INTERACTION_CREATE", body, 0)
        if wait:
            try:
                await self.wait_until(lambda: it.response is not None, self.interaction_deadline)
            except TimeoutError:
                it.error = "The application did not respond"
        return it
