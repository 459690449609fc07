"""Commands, buttons and forms that people use: docs.discord.com/developers/interactions/receiving-and-responding."""

from __future__ import annotations

import secrets
from typing import Any

from tests.servers.discord import options as entry
from tests.servers.discord import permissions
from tests.servers.discord.components import BUTTON, LINK, flatten
from tests.servers.discord.model import AUTOCOMPLETE, COMMAND, COMPONENT, MIB, MODAL, Interaction, Json
from tests.servers.discord.threads import Threads

ENTITIES = frozenset({entry.USER, entry.CHANNEL, entry.ROLE, entry.MENTIONABLE, entry.ATTACHMENT})


class Interactions(Threads):
    """What people click and enter; a LookupError says that Discord's client would not offer it."""

    #: set in the portal: interactions go there (nothing is posted here) and the gateway carries none;
    #: docs.discord.com/developers/interactions/overview#configuring-an-interactions-endpoint-url
    interactions_endpoint_url: str | None = None

    async def slash(
        self,
        name: str,
        options: Json | None = None,
        *,
        channel: str | None = None,
        user: str | None = None,
        wait: bool = True,
    ) -> Interaction:
        """Use a registered command; ``name`` may be 'group sub'. With ``wait`` until the first response.

        Values of users, channels and roles are ids; of attachments bytes. Raises LookupError for a command that is not
        registered there, an option that it does not have, and a value that the option does not take.
        """
        return await self._invoke(COMMAND, name, options or {}, channel, user, "", wait)

    async def autocomplete(
        self, name: str, focused: str, value: str, options: Json | None = None, **place: Any
    ) -> list[Json]:
        """The choices shown while a person has entered ``value``; none when the bot is late."""
        given = {**(options or {}), focused: value}
        used = await self._invoke(AUTOCOMPLETE, name, given, place.get("channel"), place.get("user"), focused, True)
        return used.choices or []

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
        """Press a button, or pick ``values`` in a select, of a message; its channel is found if it is not given."""
        cid, uid = self.where(message, channel), user or self.alice
        msg = self._find(cid, message)
        if self._private.get(message, uid) != uid:
            raise LookupError("that message is private to somebody else")
        part = next((c for c in flatten(msg["components"]) if c.get("custom_id") == custom_id), None)
        if part is None:
            raise LookupError(f"no component {custom_id!r}")
        if part.get("disabled") or part.get("style") == LINK:
            raise LookupError(f"component {custom_id!r} cannot be used")
        picked = {} if part["type"] == BUTTON else {"values": values or []}
        data = {"custom_id": custom_id, "component_type": part["type"], "id": part.get("id", 1), **picked}
        return await self._interact(COMPONENT, data, cid, uid, wait, source=message)

    async def submit_modal(self, of: Interaction, values: dict[str, str], *, wait: bool = True) -> Interaction:
        """Send the form that an interaction opened."""
        if of.modal is None:
            raise LookupError("that interaction opened no modal")
        rows = [
            {"type": 1, "id": n + 1, "components": [{"type": 4, "id": n + 90, "custom_id": key, "value": value}]}
            for n, (key, value) in enumerate(values.items())
        ]
        data = {"custom_id": of.modal["custom_id"], "components": rows}
        return await self._interact(MODAL, data, of.channel, of.user, wait, source=of.source)

    async def _invoke(
        self, kind: int, name: str, given: Json, channel: str | None, user: str | None, focused: str, wait: bool
    ) -> Interaction:
        cid, uid = channel or self.general, user or self.alice
        root, *path = name.split()
        command = self._command(root, cid, uid)
        leaf, nest = entry.find_leaf(command, path)
        spec = {option["name"]: option for option in leaf.get("options") or []}
        if unknown := set(given) - set(spec):
            raise LookupError(f"/{name} has no options {sorted(unknown)}")
        missing = [key for key, option in spec.items() if option.get("required") and key not in given]
        if missing and kind == COMMAND:
            raise LookupError(f"/{name} needs {missing}")
        if focused and not spec[focused].get("autocomplete"):
            raise LookupError(f"option {focused} of /{name} has no autocomplete")
        sent, resolved = self._enter(spec, given, focused, cid)
        for step in reversed(nest):
            sent = [{"name": step["name"], "type": step["type"], "options": sent}]
        data: Json = {"id": command["id"], "name": root, "type": 1, "options": sent, "resolved": resolved}
        if "guild_id" in command:
            data["guild_id"] = command["guild_id"]
        option_type = spec[focused]["type"] if focused else 0
        return await self._interact(kind, data, cid, uid, wait, option_type=option_type, command=name)

    def _command(self, name: str, cid: str, uid: str) -> Json:
        """The command of that name that a person can use in that place, a guild's own before a global one."""
        channel = self.channels[cid]
        guild = channel.get("guild_id")
        known = [*(self.commands.get(guild, []) if guild else ()), *self.commands["global"]]
        found: Json | None = next((c for c in known if c["name"] == name and c["type"] == 1), None)
        contexts = (found or {}).get("contexts")
        if found is None or (contexts is not None and (0 if guild else 1) not in contexts):
            raise LookupError(f"/{name} is not registered")
        if guild is None:
            if found.get("dm_permission") is False:
                raise LookupError(f"/{name} is not for direct messages")
            return found
        bits = self.permissions_of(uid, cid)
        needed = int(found.get("default_member_permissions") or 0)
        if not permissions.has(bits, "USE_APPLICATION_COMMANDS") or bits & needed != needed:
            raise LookupError(f"/{name} is not allowed here")
        meta = channel.get("thread_metadata")
        if meta and meta["archived"]:  # docs.discord.com/developers/topics/threads#active-archived-threads
            raise LookupError("commands cannot be used in an archived thread")
        return found

    def _enter(self, spec: Json, given: Json, focused: str, cid: str) -> tuple[list[Json], Json]:
        """The options as they are sent, and the objects behind their ids.

        docs.discord.com/developers/interactions/receiving-and-responding#interaction-object-resolved-data-structure
        """
        sent: list[Json] = []
        resolved: Json = {}
        for key, value in given.items():
            option = spec[key]
            if key == focused:
                sent.append({"name": key, "type": option["type"], "value": value, "focused": True})
                continue
            upload = option["type"] == entry.ATTACHMENT and isinstance(value, bytes)
            kept = self._upload_of_person(value, resolved) if upload else value
            entry.check_entry(option, kept)
            if option["type"] in ENTITIES - {entry.ATTACHMENT}:
                self._resolve(option, str(kept), resolved, cid)
            sent.append({"name": key, "type": option["type"], "value": kept})
        return sent, resolved

    def _upload_of_person(self, blob: bytes, resolved: Json) -> str:
        aid = self.snowflake()
        self.blobs[aid] = blob
        url = self.attachment_url("0", aid, "upload.bin")
        made = {"id": aid, "filename": "upload.bin", "size": len(blob), "url": url, "proxy_url": url, "ephemeral": True}
        resolved.setdefault("attachments", {})[aid] = made
        return aid

    def _resolve(self, option: Json, value: str, resolved: Json, cid: str) -> None:
        kind, guild = option["type"], self.channels[cid].get("guild_id")
        if kind in (entry.USER, entry.MENTIONABLE) and value in self.users:
            resolved.setdefault("users", {})[value] = self.users[value]
            if guild and value in self.guilds[guild].members:
                whole = self._member(value, guild) | {"permissions": str(self.permissions_of(value, cid))}
                resolved.setdefault("members", {})[value] = {k: v for k, v in whole.items() if k != "user"}
        elif kind in (entry.ROLE, entry.MENTIONABLE) and guild and value in self.guilds[guild].roles:
            resolved.setdefault("roles", {})[value] = self.guilds[guild].roles[value]
        elif kind == entry.CHANNEL and value in self.channels and self.channels[value].get("guild_id") == guild:
            allowed = option.get("channel_types")
            if allowed and self.channels[value]["type"] not in allowed:
                raise LookupError(f"option {option['name']}: not a channel of its types")
            resolved.setdefault("channels", {})[value] = self._partial_channel(value)
        else:
            raise LookupError(f"option {option['name']}: there is no {value!r}")

    def _partial_channel(self, cid: str) -> Json:
        channel = self.channels[cid]
        keys = (
            "id",
            "name",
            "type",
            "parent_id",
            "thread_metadata",
            "guild_id",
            "recipients",
            "last_message_id",
            "flags",
        )
        return {key: channel[key] for key in keys if key in channel} | {"permissions": self._app_permissions(cid)}

    async def _interact(
        self,
        kind: int,
        data: Json,
        cid: str,
        uid: str,
        wait: bool,
        *,
        source: str | None = None,
        option_type: int = 0,
        command: str = "",
    ) -> Interaction:
        """Send INTERACTION_CREATE.

        docs.discord.com/developers/interactions/receiving-and-responding#interaction-object
        """
        used = Interaction(
            self.snowflake(), secrets.token_urlsafe(48), kind, cid, uid, self.clock.now(), source,
            option_type=option_type, command=command,
        )  # fmt: skip
        self.interactions[used.token] = used
        guild = self.channels[cid].get("guild_id")
        limit = self.guilds[guild].file_limit if guild else 10 * MIB
        body: Json = {
            "id": used.id, "application_id": self.app_id, "type": kind, "data": data, "token": used.token, "version": 1,
            "channel_id": cid, "channel": self._partial_channel(cid), "app_permissions": self._app_permissions(cid),
            "locale": "en-US", "entitlements": [], "context": 0 if guild else 1, "attachment_size_limit": limit,
            "authorizing_integration_owners": {"0": guild or "0"},
        }  # fmt: skip
        if guild:
            member = self._member(uid, guild) | {"permissions": str(self.permissions_of(uid, cid))}
            shown = {"id": guild, "locale": "en-US", "features": []}
            body |= {"guild_id": guild, "guild": shown, "guild_locale": "en-US", "member": member}
        else:
            body["user"] = self.users[uid]
        if source:
            body["message"] = self._wire(self._find(cid, source))
        if self.interactions_endpoint_url is None:
            self._dispatch("INTERACTION_CREATE", lambda s: body, 0, guild=guild)
        if wait:
            try:
                await self.wait_until(lambda: used.response is not None, self.interaction_deadline)
            except TimeoutError:
                used.error = "The application did not respond"
        return used
