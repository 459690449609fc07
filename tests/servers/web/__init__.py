"""Local web: search services, paper catalogues, and pages of all kinds."""

from tests.servers.web.server import Asked, WebServer

__all__ = ["Asked", "WebServer"]
