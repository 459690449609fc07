from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.context import Redactor
from bot.redact import MARK, SecretRedactor
from tests.stopwatch import least_cpu_s

PLAIN: Redactor = SecretRedactor(())
SECRET = 'p@ss "w/ö+rd\\'


def test_a_known_value_is_blanked_wherever_it_stands() -> None:
    assert SecretRedactor(["hunter22"]).redact("a hunter22 b xhunter22x") == "a [redacted] b x[redacted]x"


def test_short_values_are_left_alone() -> None:
    assert SecretRedactor(["abcde", "", "a"]).redact("abcde a") == "abcde a"


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        re.sub("%..", lambda match: match.group().lower(), quote(SECRET, safe="")),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps({"password": SECRET})),
        html.escape(SECRET, quote=False),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_value_is_found_in_every_usual_encoding(written: str) -> None:
    clean = SecretRedactor([SECRET]).redact(f"before {written} after")
    assert MARK in clean
    assert written not in clean
    assert "ö" not in clean


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "abcd"])
def test_a_known_value_inside_basic_credentials_is_found_at_every_offset(user: str) -> None:
    credentials = base64.b64encode(f"{user}:correct horse battery:tail".encode()).decode()
    clean = SecretRedactor(["correct horse battery"]).redact(credentials)
    assert MARK in clean
    blanked = len(credentials) - len(clean.replace(MARK, ""))
    assert blanked >= 21 * 8 // 6 - 1  # every digit that depends on the secret alone


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("token xoxb-123456789012-abcdefABCDEF.", "token [redacted]."),
        ("xoxe.xoxp-1-abcdefghijkl", "[redacted]"),
        ("xapp-1-A0123-456-abcdef", "[redacted]"),
        ("key=sk-proj-abcdefghijklmnop1234", "key=[redacted]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted]"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mnop", "[redacted]"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("authorization: bearer abcdefghijklmnopqrstuv", "authorization: bearer [redacted]"),
        ("Authorization: Basic dTpw", "Authorization: Basic [redacted]"),
        ("postgresql://user:pa:ss@db:5432/shop", "postgresql://user:[redacted]@db:5432/shop"),
        ("redis://:secret@h/0", "redis://:[redacted]@h/0"),
        ("mysql://u:p%40x@h and postgres://v:q@i", "mysql://u:[redacted]@h and postgres://v:[redacted]@i"),
        ("host=h password=x1 user=u", "host=h password=[redacted] user=u"),
        ("password='two words' x", "password=[redacted] x"),
        (r'"dsn": "password=\"two words\" x"', '"dsn": "password=[redacted] x"'),
        ("token: " + "MTU3Njk2OTY1NTExMTY0NzIzNQ" + ".GhIjKl." + "x" * 38, "token: [redacted]"),
        (
            "https://discord.com/api/v10/webhooks/12/" + "Ab-_" * 17,
            "https://discord.com/api/v10/webhooks/12/[redacted]",
        ),
        ("https://hooks.slack.com/services/T0/B0/abcdef", "https://hooks.slack.com/services/[redacted]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0aaa.sig-x", "[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAB==\n-----END RSA PRIVATE KEY-----\nnext", "[redacted]\nnext"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB truncated", "[redacted]"),
    ],
)
def test_what_looks_like_a_credential_is_blanked(text: str, clean: str) -> None:
    assert PLAIN.redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "task-list-with-many-words-in-it",
        "the bearer authentication scheme",
        "http://localhost:8484/healthz and https://host:1/a@b",
        "select password from users where password is not null",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "postgresql://reader@db:5432/shop?user=x@y",
        "targets.shop.password: missing; set it",
        "[redacted] stays",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert PLAIN.redact(text) == text


def test_overlapping_secrets_leave_nothing_of_either() -> None:
    assert SecretRedactor(["abcdef", "defghi"]).redact("-abcdefghi-") == "-[redacted]-"


def test_the_representation_shows_no_secret() -> None:
    assert "hunter22" not in repr(SecretRedactor(["hunter22"]))


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.text(
    alphabet="[redact]:@/sk-passwordBearer= xo", max_size=60
)
SECRETS = st.text(alphabet=st.characters(codec="utf-8"), min_size=6, max_size=30).filter(
    lambda s: len(s.strip()) >= 6 and s.strip() not in MARK
)


@given(secret=SECRETS, before=TEXTS, after=TEXTS, form=st.sampled_from(["plain", "url", "json", "base64", "basic"]))
def test_a_planted_secret_never_survives(secret: str, before: str, after: str, form: str) -> None:
    secret = secret.strip()
    written = {
        "plain": secret,
        "url": quote(secret, safe=""),
        "json": json.dumps(secret)[1:-1],
        "base64": base64.b64encode(secret.encode()).decode(),
        "basic": base64.b64encode(b"u:" + secret.encode()).decode(),
    }[form]
    clean = SecretRedactor([secret]).redact(before + written + after)
    if secret not in MARK:
        assert secret not in clean.replace(MARK, "\0")
    assert written not in clean.replace(MARK, "\0")


@given(
    secrets=st.lists(SECRETS | st.sampled_from(["redacted", "d]abcd", "x[reda", "[redacted]x"]), max_size=3), text=TEXTS
)
def test_redacting_twice_changes_nothing_more(secrets: list[str], text: str) -> None:
    redactor = SecretRedactor(secrets)
    once = redactor.redact(text + "".join(secrets) + text)
    assert redactor.redact(once) == once


@pytest.mark.parametrize(
    "unit",
    [
        "a", "sk-", "://a:", "://a:b", "bearer ", "Bearer aaaa", "eyJ", "eyJaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----",
        "password='", "xoxb-", "aaaaaab", "[redacted]", "-",
    ],
)  # fmt: skip
def test_a_megabyte_is_redacted_in_linear_time(unit: str) -> None:
    redactor = SecretRedactor(["aaaaaa" * 3, "hunter22", SECRET])

    def measure(size: int) -> float:
        text = unit * (size // len(unit))
        return least_cpu_s(lambda: redactor.redact(text), enough_s=15)

    # A quadratic pattern needs minutes here; the bound leaves room for a slow machine.
    assert measure(1_000_000) < 15
