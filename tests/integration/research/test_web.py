"""Fetching pages: what comes within the bounds, and everything that must not be reached through Hermod."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from agent_core.errors import ToolFailed
from bot.tools.research.web import WebClient, is_public


class Site:
    """A local web site; ``log`` has every request that reached it."""

    def __init__(self) -> None:
        self.log: list[web.Request] = []
        self.pages: dict[str, web.Response] = {}
        self.address = ""
        self.hang = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.log.append(request)
        match request.path.split("/")[1:]:
            case ["to", *_]:
                raise web.HTTPFound(request.query["url"])
            case ["loop"]:
                raise web.HTTPFound("/loop")
            case ["status", code]:
                return web.Response(status=int(code))
            case ["bomb"]:
                body = gzip.compress(b"a" * 50_000_000)
                return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "text/html"})
            case ["hang"]:
                await self.hang.wait()
        return web.Response(text="<p>hello</p>", content_type="text/html", headers={"Set-Cookie": "a=b"})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0)
    await place.start()
    made.address = f"127.0.0.1:{runner.addresses[0][1]}"
    yield made
    made.hang.set()
    await runner.cleanup()


@pytest.fixture
async def client(site: Site) -> AsyncIterator[WebClient]:
    async with WebClient(allowed=[site.address], timeout_s=20, most_bytes=100_000) as made:
        yield made


async def refuse(client: WebClient, url: str) -> ToolFailed:
    with pytest.raises(ToolFailed) as failed:
        await client.get(url)
    return failed.value


async def test_a_page_comes_with_its_kind_and_final_address(site: Site, client: WebClient) -> None:
    found = await client.get(f"http://{site.address}/to/x?url=/page", parameters={"n": "1"})
    assert (found.kind, found.body, found.cut) == ("text/html", b"<p>hello</p>", False)
    assert found.url == f"http://{site.address}/page"
    again = await client.get(f"http://{site.address}/page")
    assert again.body == found.body
    assert "Cookie" not in site.log[-1].headers


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://metadata/",
        "https://127.0.0.1:443/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://0x7f.0.0.1/",
        "http://0x7f.1./",
        "http://169.254.43518/",
        "http://０x7f.1/",
        "http://①②⑦.0.0.1/",
        "http://127。0。0。1/",
        "http://127.0.0.1#@example.org/",
        "http://example.org@127.0.0.1/",
        "http://example.org\\@127.0.0.1/",
        "http://[::]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b:1::7f00:1]/",
        "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
        "http://[::1%25lo]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://192.88.99.1/",
        "http://[fec0::1]/",
        "http://[3fff::1]/",
        "http://[2001:4860:4860::5efe:7f00:1]/",
        "http://[2001:4860:4860::200:5efe:10.0.0.1]/",
    ],
)
async def test_an_address_that_is_not_public_is_refused(client: WebClient, site: Site, url: str) -> None:
    failed = await refuse(client, url)
    assert failed.code in ("address_refused", "bad_url")
    assert site.log == []


@pytest.mark.parametrize("port", [22, 25, 5432, 6379, 8080, 8484])
async def test_other_ports_than_those_of_the_web_are_refused(client: WebClient, port: int) -> None:
    assert (await refuse(client, f"http://example.org:{port}/")).code == "address_refused"


@pytest.mark.parametrize("target", ["http://169.254.169.254/", "http://127.0.0.1:1/", "http://[::1]/", "//10.0.0.1/x"])
async def test_a_redirect_to_an_address_that_is_not_public_is_refused(
    client: WebClient, site: Site, target: str
) -> None:
    assert (await refuse(client, f"http://{site.address}/to/x?url={target}")).code == "address_refused"


async def test_a_name_with_one_address_that_is_not_public_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(site.address.partition(":")[2])
    real = socket.getaddrinfo

    def lie(host: str, *rest: object, **named: object) -> list[tuple[object, ...]]:
        if host != "rebind.test":
            return real(host, *rest, **named)  # type: ignore[arg-type, return-value]
        kinds = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kinds, ("93.184.215.14", port)), (*kinds, ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lie)
    async with WebClient(timeout_s=20) as client:
        assert (await refuse(client, "http://rebind.test/")).code == "address_refused"
    assert site.log == []


NO_PAGES = (
    *("", "ftp://example.org/", "file:///etc/passwd", "http://", "javascript:alert(1)", "http://u:p@example.org/"),
    f"http://a.b/{'x' * 3000}",
)


@pytest.mark.parametrize("url", NO_PAGES)
async def test_what_is_no_address_of_a_page_is_told(client: WebClient, url: str) -> None:
    assert (await refuse(client, url)).code == "bad_url"


@pytest.mark.parametrize("url", ["http://a..example.org/", f"http://{'a' * 70}.example.org/", "http://.example.org/"])
async def test_a_name_that_cannot_be_one_is_no_passing_failure(client: WebClient, url: str) -> None:
    assert (await refuse(client, url)).code == "bad_url"


@pytest.mark.parametrize("host", ["Wiki.Test", "bücher.test", "xn--bcher-kva.test", "WIKI.test"])
async def test_an_allowed_host_may_be_written_in_any_way(
    site: Site, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    real, port = socket.getaddrinfo, site.address.partition(":")[2]
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **named: real("127.0.0.1", *rest, **named))
    async with WebClient(allowed=[f"{host}:{port}"], timeout_s=20) as client:
        for written in (host, host.lower(), host.encode("idna").decode()):
            assert (await client.get(f"http://{written}:{port}/page")).body == b"<p>hello</p>"
        other = await refuse(client, f"http://not-{host}:{port}/page")
    assert other.code == "address_refused"


async def test_an_allowed_host_opens_no_other_port_and_no_redirect(site: Site, client: WebClient) -> None:
    for url in ("http://127.0.0.1:1/", f"http://{site.address}/to/x?url=http://localhost:{site.address[10:]}/"):
        assert (await refuse(client, url)).code == "address_refused"


async def test_neither_a_proxy_nor_a_login_of_the_environment_is_used(
    site: Site, client: WebClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password s3cr3t\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await client.get(f"http://{site.address}/page")).body == b"<p>hello</p>"
    assert "Authorization" not in site.log[-1].headers


async def test_redirects_end(client: WebClient, site: Site) -> None:
    assert (await refuse(client, f"http://{site.address}/loop")).code == "too_many_redirects"
    assert len(site.log) == 6


async def test_a_redirect_to_something_else_than_a_page_is_refused(client: WebClient, site: Site) -> None:
    assert (await refuse(client, f"http://{site.address}/to/x?url=file:///etc/passwd")).code == "bad_url"


async def test_a_body_that_grows_when_it_is_unpacked_is_cut_at_the_bound(client: WebClient, site: Site) -> None:
    found = await client.get(f"http://{site.address}/bomb")
    assert found.cut
    assert len(found.body) == 100_000


async def test_a_key_in_a_header_does_not_follow_a_redirect_to_another_host(client: WebClient, site: Site) -> None:
    other = site.address.replace("127.0.0.1", "localhost")
    async with WebClient(allowed=[site.address, other], timeout_s=20) as two:
        await two.get(f"http://{site.address}/to/x?url=http://{other}/page", headers={"X-Key": "s3cr3t"})
    assert [request.headers.get("X-Key") for request in site.log] == ["s3cr3t", None]


@pytest.mark.parametrize(("status", "again"), [(404, False), (403, False), (429, True), (503, True)])
async def test_a_status_of_failure_says_whether_to_try_again(
    client: WebClient, site: Site, status: int, again: bool
) -> None:
    failed = await refuse(client, f"http://{site.address}/status/{status}")
    assert (failed.code, failed.retryable) == ("fetch_failed", again)
    assert str(status) in str(failed)


async def test_a_server_that_does_not_answer_is_given_up(site: Site) -> None:
    async with WebClient(allowed=[site.address], timeout_s=0.3) as client:
        failed = await refuse(client, f"http://{site.address}/hang")
    assert failed.retryable
    assert "0.3 seconds" in str(failed)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "64:ff9b::808:808", "2001:4860::5efe:808:808"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)
