"""Letters that matplotlib's own font does not have, from the fonts of this machine."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection

WIDE = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Noto Sans",
    "Noto Emoji",
)
"""Families with Chinese, Japanese and Korean letters, and others that DejaVu Sans lacks, in the order of asking."""


def choose_families(installed: Collection[str]) -> list[str]:
    """Return the families to draw with: matplotlib's own, and what is installed of ``WIDE`` for what it lacks."""
    return ["sans-serif", *(family for family in WIDE if family in installed)]


def add_fallbacks() -> None:
    """Let plots fall back to the machine's fonts, letter by letter; nothing happens where matplotlib is not loaded.

    See https://matplotlib.org/stable/users/explain/text/fonts.html#font-fallback.
    """
    matplotlib, manager = sys.modules.get("matplotlib"), sys.modules.get("matplotlib.font_manager")
    if matplotlib is not None and manager is not None:
        installed = {font.name for font in manager.fontManager.ttflist}
        matplotlib.rcParams["font.family"] = choose_families(installed)
        # that a font has another weight than the one asked for is nobody's business
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
