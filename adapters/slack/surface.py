"""What a reply becomes on Slack: text, blocks, buttons, files. The only place of what goes out that renders."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from adapters.chat import Attachment, Button, Limits, Reply
from adapters.markdown import fit_markdown
from adapters.slack.render import Rendered, render_edit, render_message

Block = dict[str, object]

SECTION_MAX = 2_900
"""Characters of one section block; Slack refuses 3,001 (docs.slack.dev/reference/block-kit/blocks/section-block)."""

BUTTONS_MAX = 25
LABEL_MAX = 75
FEEDBACK = "feedback"

_NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """A rendered reply.

    Args:
        reply: what was rendered.
        rendered: its text and blocks.
        controls: the blocks under it.
    """

    reply: Reply
    rendered: Rendered
    controls: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The whole text as mrkdwn: for notifications and screen readers, and alone where blocks are refused."""
        return self.rendered.text

    @property
    def files(self) -> tuple[Attachment, ...]:
        """What follows the text."""
        return (*self.rendered.files, *self.reply.files)

    def forms(self) -> Iterator[tuple[Block, ...]]:
        """Blocks to try in turn, the best first: Slack refuses a whole message for one block that it does not take.

        The last one is empty: the text alone.
        """
        blocks = (*(dict(block) for block in self.rendered.blocks), *self.controls)
        if blocks:
            yield blocks
        if any(block["type"] == "table" for block in blocks):
            plain = _render(self.reply, len(self.controls), native_tables=False)
            yield (*(dict(block) for block in plain.blocks), *self.controls)
        if self.controls:
            yield (*_sections(self.reply), *self.controls)
        yield ()


def build_surface(reply: Reply) -> Surface:
    """Render a reply. A blank text gives a blank ``Surface.text``."""
    controls = build_controls(reply)
    return Surface(reply=reply, rendered=_render(reply, len(controls)), controls=controls)


def _render(reply: Reply, controls: int, *, native_tables: bool = True) -> Rendered:
    return render_message(reply.text, reply.mentions, reserve_blocks=controls, native_tables=native_tables)


def render_text(markdown: str, mentions: Collection[str] = ()) -> str:
    """Render a piece of a text as mrkdwn, whole."""
    return render_edit(markdown, mentions, limit_bytes=_NO_LIMIT)


def build_controls(reply: Reply) -> tuple[Block, ...]:
    """Build the blocks under the text: buttons, then thumbs up and down.

    A pressed thumb comes back as the action ``feedback`` with the value ``ID/up`` or ``ID/down``.
    """
    return (*_button_rows(reply.buttons), *((_feedback(reply.feedback),) if reply.feedback else ()))


def _sections(reply: Reply) -> Iterator[Block]:
    """Slack shows ``text`` only where there are no blocks, so text beside buttons is written as sections."""
    limits = Limits(text_max=SECTION_MAX)
    for part in fit_markdown(reply.text, limits, measure=lambda text: len(render_text(text, reply.mentions))):
        text = render_text(part, reply.mentions)
        yield {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}, "expand": True}


def _button_rows(buttons: tuple[Button, ...]) -> Iterator[Block]:
    """One row, and one more for each further button of the same name: names are unique inside a block."""
    rows: list[list[Button]] = []
    for button in buttons[:BUTTONS_MAX]:
        row = next((row for row in rows if button.name not in {other.name for other in row}), None)
        if row is None:
            rows.append([button])
        else:
            row.append(button)
    for row in rows:
        yield {"type": "actions", "elements": [_button(button) for button in row]}


def _button(button: Button) -> Block:
    made: Block = {
        "type": "button",
        "action_id": button.name,
        "text": {"type": "plain_text", "text": button.label[:LABEL_MAX], "emoji": True},
        "value": button.value,
    }
    return made | ({"style": button.style} if button.style else {})


def _feedback(value: str) -> Block:
    def thumb(label: str, answer: str) -> Block:
        return {
            "text": {"type": "plain_text", "text": label},
            "accessibility_label": f"Mark this answer as {answer}",
            "value": f"{value}/{answer}",
        }

    element = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": thumb("Helpful", "up"),
        "negative_button": thumb("Not helpful", "down"),
    }
    return {"type": "context_actions", "elements": [element]}
