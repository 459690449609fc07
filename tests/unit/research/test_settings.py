"""The settings of research: who searches, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.settings import Settings, SettingsError, load_settings


def load(tmp_path: Path, text: str, *, installed: bool = True) -> Settings:
    path = tmp_path / "hermod.toml"
    path.write_text(f"[research]\n{text}\n")
    return load_settings(path, {}, installed=lambda module: installed)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "keyless"),
        ('search_url = "http://searx:8080"', "searxng"),
        ('api_key = "tvly-abc"', "tavily"),
        ('api_key = "BSAabc"', "brave"),
        ('provider = "brave"\napi_key = "other"', "brave"),
        ('provider = "tavily"\napi_key = "other"\nsearch_url = "http://127.0.0.1:1/search"', "tavily"),
    ],
)
def test_who_searches_follows_from_the_keys(tmp_path: Path, text: str, name: str) -> None:
    assert load(tmp_path, text).research.searches_with == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('api_key = "what"', 'research.provider: say whose api_key it is: "brave" or "tavily"'),
        ('api_key = "tvly-a"\nsearch_url = "https://a.b"', "research.provider: say whose api_key it is"),
        ('provider = "searxng"', "research.search_url: missing"),
        ('provider = "brave"', "research.api_key: missing"),
        ('provider = "keyless"\nsearch_url = "https://a.b"', "research.search_url: has no effect"),
        ('provider = "searxng"\nsearch_url = "https://a.b"\napi_key = "x"', "research.api_key: has no effect"),
        ('search_url = "searx:8080"', "research.search_url: must be a URL"),
        ('arxiv_url = "export.arxiv.org"', "research.arxiv_url: must be a URL"),
        ('allow_hosts = ["wiki.example.com"]', "research.allow_hosts[0]: must be a host and a port"),
        ('allow_hosts = ["wiki.example.com:99999"]', "research.allow_hosts[0]: must be a host and a port"),
        ('search_url = "https://me:s3cr3t@searx.example.com"', "research.search_url: must have no user and password"),
        ('search_url = "http://[::1"', "research.search_url: must be a URL"),
        ('arxiv_url = "https://me@arxiv.example.com"', "research.arxiv_url: must have no user and password"),
        ('provider = "brave"\napi_key = ""', "research.api_key: missing"),
        ('provider = "brave"\napi_key = "BSA abc"', "research.api_key: must be the key alone"),
        ('api_key = "tvly-abc\\nX-Other: 1"', "research.api_key: must be the key alone"),
        ('semantic_scholar_key = "schlüssel"', "research.semantic_scholar_key: must be the key alone"),
        ("max_results = 50", "research.max_results: must be at most 20"),
    ],
)
def test_mistakes_are_told_with_the_remedy(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, text)
    assert said in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_missing_library_is_told_at_the_start_only_where_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"hermod-bot\[research\]"):
        load(tmp_path, 'provider = "keyless"', installed=False)
    assert load(tmp_path, "", installed=False).research.searches_with == "keyless"


def test_keys_are_secrets(tmp_path: Path) -> None:
    settings = load(tmp_path, 'api_key = "tvly-0123456789"\nsemantic_scholar_key = "s2-0123456789"')
    assert {"tvly-0123456789", "s2-0123456789"} <= set(settings.secrets())
    assert "0123456789" not in repr(settings)
