"""A message with all that belongs to it, sent so that its text arrives whatever becomes of the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from adapters.discord.files import FILE_MAX, Packed, build_note, pack_files
from adapters.discord.http import Answer
from adapters.discord.outcome import INVALID_BODY, NO_PERMISSION, NO_REPLY, Failed
from adapters.discord.payload import Payload
from adapters.markdown import unit_size

log = structlog.get_logger("hermod.discord")

TEXT_MAX = 2_000

_size = unit_size("utf16")  # never less than what Discord counts

Send = Callable[[Payload, Packed, int], Awaitable[Answer | Failed]]
"""Sends one message with its files: the first one (0), or one that follows it (1 and up)."""


async def send_parcel(send: Send, payload: Payload, *, file_max: int = FILE_MAX) -> Answer | Failed:
    """Send a message; in more than one where its files need that.

    What Discord does not take beside the text (a file, buttons, the reference of a reply) is left out, and a file
    that is missing is named: as the last line of the text, else in a message of its own.

    Returns:
        The answer to the message that holds the text, or why it was not sent. What follows it costs nothing else
        when it fails.
    """
    packs, notes = pack_files(payload.files, file_max)
    payload, unsaid = _with_notes(payload, notes)
    if not (payload.content.strip() or payload.components or packs):
        unsaid = ()  # nothing to say at all: Discord has the word for it
    sent, later, lost = await _send_best(send, payload, packs[0] if packs else Packed(), 0)
    if isinstance(sent, Failed):
        return sent
    rest = [*unsaid, *lost]
    number = 1
    for pack in (*later, *packs[1:]):
        answer, more, lost = await _send_best(send, Payload(private=payload.private), pack, number)
        rest += lost
        number += 1
        if more or isinstance(answer, Failed):
            reason = answer.said if isinstance(answer, Failed) else "Discord did not take it"
            rest += [build_note(file.name, reason) for file in pack.files]
    if rest:
        text = "\n".join(dict.fromkeys(rest))[:TEXT_MAX]
        told = await send(Payload(content=text, private=payload.private), Packed(), number)
        if isinstance(told, Failed):
            log.error("discord_file_not_posted", reason=told.said)
    return sent


async def _send_best(
    send: Send, payload: Payload, pack: Packed, number: int
) -> tuple[Answer | Failed, tuple[Packed, ...], tuple[str, ...]]:
    """Send the whole, else what of it Discord takes; then which files have to be tried alone, and what is unsaid."""
    later: tuple[Packed, ...] = ()
    unsaid: tuple[str, ...] = ()
    while True:
        answer = await send(payload, pack, number)
        if not isinstance(answer, Failed):
            return answer, later, unsaid
        has_text = bool(payload.content.strip() or payload.components)
        if pack.files and (answer.is_too_large or answer.code == NO_PERMISSION):
            if answer.is_too_large and len(pack.files) > 1 and has_text:
                later = tuple(
                    Packed(files=(file,), uploads=(upload,))
                    for file, upload in zip(pack.files, pack.uploads, strict=True)
                )
            else:
                notes = [build_note(file.name, answer.said) for file in pack.files]
                payload, unsaid = _with_notes(payload, notes)
            pack = Packed()
        elif payload.reply_to and answer.code == NO_REPLY:
            payload = replace(payload, reply_to="")
        elif payload.components and answer.code == INVALID_BODY:
            payload = replace(payload, components=())
        else:
            return answer, later, unsaid
        log.warning("discord_message_reduced", reason=answer.said)


def _with_notes(payload: Payload, notes: Sequence[str]) -> tuple[Payload, tuple[str, ...]]:
    """Put notes behind the text where they fit, else return them."""
    content = "\n".join(part for part in (payload.content, *notes) if part)
    if _size(content) > TEXT_MAX:
        return payload, tuple(notes)
    return replace(payload, content=content), ()
