"""Code that people type: behind ``/py``, or as a mention that is nothing but a fence with Python; no model reads it."""

from __future__ import annotations

import re

from adapters.chat import Message

_LANGUAGES = r"(?:python3?|py3?)"
_FENCED = re.compile(
    rf"\A\s*(?:(?P<word>{_LANGUAGES}|run_python|run)\s*:?\s*)?"  # "py ```...```"
    r"(?P<ticks>`{3,})(?P<inside>.*?)(?P=ticks)`*\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_MARKED = re.compile(r"\A(?P<language>[\w+#.-]*)[ \t]*\n(?P<code>.*)\Z", re.DOTALL)
_MARKED_ON_ITS_LINE = re.compile(
    rf"\A{_LANGUAGES}[ \t]+(?![=.,:(\[+*/%|&^<>)\]-]|(?:in|is|if|and|or|not)\b)(?P<code>[^\n]+)\Z", re.I
)

_NAMED = re.compile(r"\s*(?:code|timeout_s|files|session)=")


def find_code(message: Message) -> str | None:
    """Return the Python code that a message consists of, or None when it is anything else.

    It has to be addressed to Hermod and to be one fence, marked as ``py`` or ``python`` or behind that word. With a
    question around it, or another language on it, a model is asked.

    Args:
        message: mentions of Hermod are removed from its text already.

    Returns:
        The code with its indentation, never blank.
    """
    if not (message.mentioned or message.direct):
        return None
    found = _FENCED.match(message.text)
    if found is None or "```" in found["inside"]:
        return None
    marked, code = _read_inside(found["inside"])
    if not code.strip() or not (marked or (marked is None and found["word"])):
        return None
    return code.strip("\r\n").rstrip()


def read_code(text: str) -> str | None:
    """Return the code behind the command ``/py``, or None where its arguments are written by name.

    Quotes and equals signs belong to the code: nothing of it is split into words. A fence, or single backticks, around
    all of it are taken off.
    """
    text = text.strip("\r\n")
    if not text.strip() or _NAMED.match(text):
        return None
    if (found := _FENCED.match(text)) and "```" not in found["inside"] and not found["word"]:
        marked, code = _read_inside(found["inside"])
        return (code if marked else found["inside"]).strip("\r\n").rstrip() or None
    if "```" in text and text.lstrip().startswith("```"):
        return None  # a fence with arguments behind it
    inner = text.strip()
    if len(inner) > 2 and inner[0] == inner[-1] == "`" and "`" not in inner[1:-1]:
        return inner[1:-1].strip() or None
    return text.strip() if "\n" not in text else text.rstrip()


def _read_inside(inside: str) -> tuple[bool | None, str]:
    """Tell whether a fence's content is marked as Python (None: not marked at all), and return it without the mark."""
    if found := _MARKED.match(inside):
        language = found["language"]
        if not language:
            return None, found["code"]
        if re.fullmatch(_LANGUAGES, language, re.IGNORECASE):
            return True, found["code"]
        # behind "py" a first line such as "x" is code; a language's name is one
        return (None, inside) if "." in language or not language.isalpha() else (False, inside)
    if found := _MARKED_ON_ITS_LINE.match(inside):
        return True, found["code"]
    return None, inside
