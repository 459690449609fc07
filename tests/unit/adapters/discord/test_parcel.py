"""A message with its files: the text always goes out, and every file that does not is named."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Attachment
from adapters.discord.files import MOST_FILES, Packed, file_name, pack_files
from adapters.discord.http import Answer
from adapters.discord.outcome import Failed, build_failed
from adapters.discord.parcel import TEXT_MAX, send_parcel
from adapters.discord.payload import Payload

FILE_MAX = 40

FILES = st.lists(
    st.builds(
        Attachment,
        name=st.sampled_from(["a.csv", "../b.csv", "", "c`d", "\u202ee.txt"]),
        content=st.text("xy", max_size=60),
        encoding=st.sampled_from(["text", "base64"]),
    ),
    max_size=25,
)


@dataclass
class Discord:
    """Takes messages as Discord does: a file that is too large, or one too many, refuses the whole."""

    real_max: int
    may_attach: bool = True
    takes_buttons: bool = True
    taken: list[tuple[Payload, Packed]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    async def send(self, payload: Payload, pack: Packed, number: int) -> Answer | Failed:
        assert len(payload.content) <= TEXT_MAX
        assert len(pack.files) == len(pack.uploads) <= MOST_FILES
        if pack.files and not self.may_attach:
            return self.refuse(403, 50013)
        if any(len(upload.content) > self.real_max for upload in pack.uploads):
            return self.refuse(413, 40005)
        if payload.components and not self.takes_buttons:
            return self.refuse(400, 50035)
        if not (payload.content.strip() or payload.components or pack.files):
            return self.refuse(400, 50006)
        self.taken.append((payload, pack))
        self.numbers.append(number)
        return Answer(status=200, data={"id": str(len(self.taken))}, headers={})

    def refuse(self, status: int, code: int) -> Failed:
        return build_failed(Answer(status=status, data={"code": code, "message": "no"}, headers={}))


@given(FILES, st.text("ab \n", max_size=2_000), st.integers(0, 60), st.booleans(), st.booleans())
async def test_the_text_arrives_whole_and_first_and_every_file_arrives_or_is_named(
    files: list[Attachment], text: str, real_max: int, may_attach: bool, takes_buttons: bool
) -> None:
    discord = Discord(real_max=real_max, may_attach=may_attach, takes_buttons=takes_buttons)
    payload = Payload(content=text, files=tuple(files), components=({"type": 1},))
    answer = await send_parcel(discord.send, payload, file_max=FILE_MAX)
    if isinstance(answer, Failed):
        assert answer.code == 50006
        assert not text.strip()
        return
    assert discord.taken[0][0].content.startswith(text)
    assert len(set(discord.numbers)) == len(discord.numbers)  # each its own nonce
    sent = [file for _, pack in discord.taken for file in pack.files]
    said = "\n".join(taken.content for taken, _ in discord.taken)
    for file in files:
        assert file in sent or f"`{file_name(file.name).replace('`', chr(39))}`" in said
    assert len(sent) == len({id(file) for file in sent})


@given(FILES, st.integers(1, 60))
def test_packs_keep_order_and_limits(files: list[Attachment], file_max: int) -> None:
    packs, notes = pack_files(files, file_max)
    sent = [file for pack in packs for file in pack.files]
    assert len(sent) + len(notes) == len(files)
    assert sent == [file for file in files if file in sent]
    for pack in packs:
        assert 0 < len(pack.files) <= MOST_FILES
        assert all(0 < len(upload.content) <= file_max for upload in pack.uploads)


@given(st.text())
def test_a_files_name_is_one_printable_component(name: str) -> None:
    shown = file_name(name)
    assert shown.isprintable()
    assert "/" not in shown
    assert "\\" not in shown
    assert 0 < len(shown) <= 200
    assert shown.strip(".") == shown or shown == "file"
