"""Files that people attached in a thread: which there are, and those that were fetched."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import FileRef
from bot.tools.python_sandbox.collect import LeftOut
from bot.tools.python_sandbox.files import clean_file_name
from bot.tools.python_sandbox.folders import UPLOADS, Folders, remove_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that somebody attached.

    Args:
        key: names it on this disk.
        name: under which code finds it in ``input/``; no other upload of the thread has it.
        file: what the platform told of it.
        message_id: of the message that it came with.
        sent_at: of that message, seconds since 1970.
        position: among the files of that message.
        problem: why it could not be fetched; empty when it was, or was not tried.
    """

    key: str
    name: str
    file: FileRef
    message_id: str
    sent_at: float
    position: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What of a thread's attached files can be handed in.

    Args:
        names: of those that are on this disk now.
        missing: the others, and why.
        unknown: names that were asked for and that the thread does not have.
        known: all names, where some were unknown.
    """

    names: tuple[str, ...] = ()
    missing: tuple[LeftOut, ...] = ()
    unknown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


_UPLOAD = TypeAdapter(Upload)


class Uploads:
    """The attached files of threads. Everything blocks.

    Args:
        folders: where they are kept.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def note(self, thread_key: str, message_id: str, sent_at: float, files: Sequence[FileRef]) -> None:
        """Remember that a message brought files; a known one is not noted again."""
        folder = self._folders.open(thread_key) / UPLOADS
        taken = {upload.name for upload in self.list(thread_key)}
        for position, file in enumerate(files):
            key = hashlib.sha256(f"{message_id}\0{file.id}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
            if (folder / f"{key}.json").exists():
                continue
            name = clean_file_name(file.name, taken=taken)
            taken.add(name)
            # Half a surrogate pair, which JSON may bring, cannot be written down.
            told = replace(file, name=_plain(file.name), media_type=_plain(file.media_type))
            upload = Upload(key=key, name=name, file=told, message_id=message_id, sent_at=sent_at, position=position)
            self._write(folder, upload)
        self._trim(folder)

    def list(self, thread_key: str) -> list[Upload]:
        """List a thread's attached files, oldest first."""
        found: list[Upload] = []
        for entry in self._folders.list_files(self._folders.find(thread_key) / UPLOADS):
            if entry.name.endswith(".json"):
                try:
                    found.append(_UPLOAD.validate_json(Path(entry.path).read_bytes()))
                except (FileNotFoundError, ValueError):  # dropped meanwhile, or of another version
                    continue
        return sorted(found, key=lambda upload: (upload.sent_at, upload.message_id, upload.position))

    def find(self, thread_key: str, upload: Upload) -> Path | None:
        """Return where the content of a file is, or None when it was not fetched."""
        path = self._folders.find(thread_key) / UPLOADS / f"{upload.key}.bin"
        return path if path.is_file() else None

    def save(self, thread_key: str, upload: Upload, content: bytes | None, problem: str = "") -> None:
        """Keep what was fetched, or why nothing was."""
        folder = self._folders.open(thread_key) / UPLOADS
        if content is not None:
            self._folders.write(folder / f"{upload.key}.bin", content)
        self._write(folder, replace(upload, problem=problem))
        self._trim(folder)

    def erase(self, thread_key: str, message_id: str) -> None:
        """Drop the files of a message that was deleted."""
        folder = self._folders.find(thread_key) / UPLOADS
        for upload in self.list(thread_key):
            if upload.message_id == message_id:
                (folder / f"{upload.key}.bin").unlink(missing_ok=True)
                (folder / f"{upload.key}.json").unlink(missing_ok=True)

    def copy(self, thread_key: str, names: Collection[str], into: Path) -> dict[str, int]:
        """Copy fetched files into a run's ``input``, so that nothing that code does there reaches ours.

        Returns:
            Sizes in bytes by name.
        """
        sizes: dict[str, int] = {}
        os.chmod(into, 0o700)
        for upload in self.list(thread_key):
            path = self.find(thread_key, upload)
            if path is None or upload.name not in names:
                continue
            remove_tree(into / upload.name)  # code of a session may have made a folder of that name
            shutil.copyfile(path, into / upload.name, follow_symlinks=False)
            os.chmod(into / upload.name, 0o444)
            self._folders.touch(path)
            sizes[upload.name] = path.stat().st_size
        os.chmod(into, 0o555)  # noqa: S103 - nobody else gets into the folder around it
        return sizes

    def _write(self, folder: Path, upload: Upload) -> None:
        self._folders.write(folder / f"{upload.key}.json", to_json(upload))

    def _trim(self, folder: Path) -> None:
        """Keep to the quota: contents are dropped first, as they can be fetched again."""
        files = self._folders.list_files(folder)
        room, notes = self._folders.most_bytes, self._folders.most_files
        for entry in files:
            content = entry.name.endswith(".bin")
            room -= entry.stat(follow_symlinks=False).st_size if content else 0
            notes -= not content
            if (content and room < 0) or (not content and notes < 0):
                Path(entry.path).unlink(missing_ok=True)
                if not content:
                    (folder / f"{entry.name.removesuffix('.json')}.bin").unlink(missing_ok=True)


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()
