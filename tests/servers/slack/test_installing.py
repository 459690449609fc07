from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth import AuthorizeUrlGenerator
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack import SlackServer
from tests.servers.slack.conftest import refusal

# Slack's own client builds its Basic header with a function that aiohttp deprecates
pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated")


async def consent(server: SlackServer, client: AsyncWebClient, *, team: str, back: str, **more: str) -> dict[str, str]:
    link = AuthorizeUrlGenerator(
        client_id=server.client_id,
        redirect_uri=back,
        scopes=["chat:write", "im:history"],
        authorization_url=f"{server.origin}/oauth/v2/authorize",
    ).generate(state="s1", team=team)
    assert client.session is not None
    async with client.session.get(link, params=more, allow_redirects=False) as answer:
        return {key: values[0] for key, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}


async def test_a_code_becomes_the_token_of_its_workspace_once(server: SlackServer, client: AsyncWebClient) -> None:
    space = server.add_workspace("T2", "Second", installed=False)
    server.add_channel("C2", "second", team="T2")
    back = "http://127.0.0.1:9/back"
    sent = await consent(server, client, team="T2", back=back)
    assert sent["state"] == "s1"
    call = {"client_id": server.client_id, "client_secret": server.client_secret, "code": sent["code"]}
    answer = await client.oauth_v2_access(**call, redirect_uri=back)
    assert answer["team"] == {"id": "T2", "name": "Second"}
    assert (answer["bot_user_id"], answer["scope"]) == (space.bot_user, "chat:write,im:history")
    other = AsyncWebClient(token=answer["access_token"], base_url=server.base_url, session=client.session)
    assert (await other.auth_test())["team_id"] == "T2"
    assert await refusal(other, "chat.postMessage", channel="C2", text="x") == "ok"
    assert await refusal(other, "chat.postMessage", channel="C1OPS", text="x") == "channel_not_found"
    assert await refusal(client, "chat.postMessage", channel="C2", text="x") == "channel_not_found"
    assert await refusal(client, "oauth.v2.access", **call, redirect_uri=back) == "invalid_code"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"client_secret": "x"}, "bad_client_secret"),
        ({"client_id": "9"}, "invalid_client_id"),
        ({"code": "x"}, "invalid_code"),
        ({"redirect_uri": "http://127.0.0.1:9/elsewhere"}, "bad_redirect_uri"),
    ],
)
async def test_what_does_not_fit_the_code_is_refused(
    server: SlackServer, client: AsyncWebClient, changed: dict[str, str], code: str
) -> None:
    sent = await consent(server, client, team="T0FAKE", back="http://127.0.0.1:9/back")
    call = {"client_id": server.client_id, "client_secret": server.client_secret, "code": sent["code"]}
    call |= {"redirect_uri": "http://127.0.0.1:9/back"} | changed
    assert await refusal(client, "oauth.v2.access", **call) == code


async def test_a_code_grows_old_and_a_refusal_gives_none(server: SlackServer, client: AsyncWebClient) -> None:
    sent = await consent(server, client, team="T0FAKE", back="http://127.0.0.1:9/back")
    server.fast_forward(601)
    call = {"client_id": server.client_id, "client_secret": server.client_secret, "code": sent["code"]}
    assert await refusal(client, "oauth.v2.access", **call, redirect_uri="http://127.0.0.1:9/back") == "invalid_code"
    refused = await consent(server, client, team="T0FAKE", back="http://127.0.0.1:9/back", deny="1")
    assert refused == {"state": "s1", "error": "access_denied"}


async def test_an_uninstalled_app_is_told_and_its_token_refused(server: SlackServer, client: AsyncWebClient) -> None:
    server.request_url = f"{server.origin}/nothing"
    await server.uninstall()
    await server.wait_until(lambda: len(server.deliveries) >= 2)
    told = {d.body["event"]["type"]: d.body["event"] for d in server.deliveries}
    assert told["tokens_revoked"]["tokens"] == {"oauth": [], "bot": [server.bot_user]}
    assert "app_uninstalled" in told
    with pytest.raises(SlackApiError, match="account_inactive"):
        await client.auth_test()


async def test_a_new_token_replaces_the_old_one(server: SlackServer, client: AsyncWebClient) -> None:
    token = server.rotate_token()
    assert await refusal(client, "auth.test") == "invalid_auth"
    assert await refusal(client, "auth.test", token=token) == "ok"
