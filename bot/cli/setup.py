"""What every command does first, and how it prints."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from bot.logs import configure_logging
from bot.redact import SecretRedactor
from bot.settings import Settings, load_settings

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|URL|DSN", re.IGNORECASE)

SCHEMA_VERSION = 1
"""The ``schema`` of every JSON object that a command prints; it rises when a field changes its meaning."""


def set_up(config: Path | None, *, verbose: bool = False, quiet: bool = True) -> Settings:
    """Load the settings and configure logging.

    Args:
        config: the settings file, or None.
        verbose: write every event.
        quiet: only warnings and worse; for commands whose output people read.

    Raises:
        SettingsError: with one line a mistake.
    """
    settings = load_settings(config, os.environ)
    start_logging(settings, verbose=verbose, quiet=quiet)
    return settings


def start_logging(settings: Settings, *, verbose: bool, quiet: bool) -> None:
    """Configure logging with the settings' secrets redacted."""
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    configure_logging(SecretRedactor(settings.secrets()), level=level)


def log_crash() -> None:
    """Log the exception being handled, redacted; without settings by the secrets that the environment names."""
    if not structlog.is_configured():
        configure_logging(SecretRedactor([v for k, v in os.environ.items() if SECRET_NAME.search(k)]))
    structlog.get_logger("hermod.cli").exception("command_crashed")


def print_json(data: Mapping[str, object]) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps({"schema": SCHEMA_VERSION, **data}, ensure_ascii=False, default=str) + "\n")


def print_text(text: str) -> None:
    """Print text on stdout."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def print_failure(text: str, *, code: str, as_json: bool) -> None:
    """Say what failed: as JSON on stdout where JSON was asked for, else on stderr."""
    if as_json:
        print_json({"ok": False, "error": {"code": code, "message": text}})
    else:
        print_error(f"hermod: {text}")


def print_error(text: str) -> None:
    """Print text on stderr."""
    sys.stderr.write(text.rstrip("\n") + "\n")
