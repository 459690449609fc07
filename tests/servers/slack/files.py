"""Files: docs.slack.dev/messaging/working-with-files."""

from __future__ import annotations

from aiohttp import web

from tests.servers.slack.methods import Methods
from tests.servers.slack.model import Json, SlackError

LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to your workspace</body></html>"


class Files(Methods):
    """Upload in three steps, download with the bot token."""

    def api_files_get_upload_url_external(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/files.getUploadURLExternal"""
        if not a.get("filename") or not str(a.get("length", "")).isdigit() or int(a["length"]) == 0:
            raise SlackError("invalid_arguments")
        info = self._new_file(str(a["filename"]), b"", self.acting.bot_user)
        info["size"] = int(a["length"])
        self.blobs.pop(info["id"])
        return {"upload_url": f"{self.origin}/upload/{info['id']}", "file_id": info["id"]}

    def api_files_complete_upload_external(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/files.completeUploadExternal

        A thread is a root's ``ts``, never a reply's. Blocks beside the files end in ``internal_error``
        (UNDOCUMENTED, python-slack-sdk issue 1756, for markdown blocks).
        """
        wanted = a.get("files")
        if not isinstance(wanted, list) or not wanted or not all(isinstance(f, dict) for f in wanted):
            raise SlackError("invalid_arguments")
        if any(b.get("type") == "markdown" for b in a.get("blocks") or []):
            raise SlackError("internal_error")
        if any(item.get("id") not in self.blobs for item in wanted):
            raise SlackError("file_not_found")
        places = [p for p in str(a.get("channels") or a.get("channel_id") or "").split(",") if p]
        channels = [self._writable({"channel": place}) for place in places]
        done = []
        for item in wanted:
            self.files[item["id"]]["title"] = item.get("title") or self.files[item["id"]]["name"]
            done.append(self.files[item["id"]])
        for channel in channels:
            msg = self._post(channel.id, {"text": a.get("initial_comment") or "", "files": done}, a.get("thread_ts"))
            for info in done:
                shares = info.setdefault("shares", {}).setdefault("public", {})
                shares.setdefault(channel.id, []).append({"ts": msg["ts"], "thread_ts": msg.get("thread_ts")})
        return {"files": done}

    def api_files_info(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/files.info"""
        if a.get("file") not in self.files:
            raise SlackError("file_not_found")
        return {"file": self.files[a["file"]]}

    async def _upload(self, request: web.Request) -> web.Response:
        fid = request.match_info["file"]
        if fid not in self.files:
            return web.Response(status=404)
        if request.content_type.startswith("multipart/"):
            blob = b"".join(
                [
                    v.file.read() if isinstance(v, web.FileField) else str(v).encode()
                    for v in (await request.post()).values()
                ]
            )
        else:
            blob = await request.read()
        if len(blob) != self.files[fid]["size"]:
            self.violations.append(f"file {fid}: declared {self.files[fid]['size']} bytes, sent {len(blob)}")
        self.blobs[fid] = blob
        return web.Response(text=f"OK - {len(blob)}")

    async def _download(self, request: web.Request) -> web.Response:
        """Needs the bot token and ``files:read``; without them Slack serves a login page, not an error."""
        fid = request.match_info["file"]
        info = self.files.get(fid, {})
        if "_redirect" in info:
            return web.Response(status=302, headers={"Location": info["_redirect"]})
        space = self._token_owner(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if space is None or not space.installed or (space.scopes is not None and "files:read" not in space.scopes):
            return web.Response(text=LOGIN_PAGE, content_type="text/html")
        blob = self.blobs.get(fid)
        if blob is None:
            return web.Response(status=404)
        return web.Response(body=blob, content_type=str(info.get("mimetype") or "application/octet-stream"))
