"""A Slack workspace on one loopback port that the genuine Slack clients talk to.

It serves what a Slack app talks to: the Web API (``/api/<method>``), Socket Mode, signed HTTP deliveries
(Events API, slash commands, interactivity), files, ``response_url`` and OAuth. Clients connect unchanged: give
``AsyncWebClient`` the server's ``base_url``.

Three sides: *people* act (``say``, ``edit``, ``slash``, ``click``, ``press_stop``, ``uninstall`` ...), the *test* looks
(``messages``, ``calls_to``, ``wait_until``, ``violations``, ``rate_violations``, ``pinged``), *faults* are injected
(``inject``, ``drop_ack``, ``disconnect``, ``silence``, ``forge``, ``copies``, ``scopes``, ``fast_forward`` ...).
``python -m tests.servers.slack --port 8199`` runs it alone; see ``tests/servers/README.md``.

Behaviour follows docs.slack.dev; what Slack does not document is marked UNDOCUMENTED.
"""

from tests.servers.slack.model import ApiCall, Copies, Delivery, Fault, Json, Outcome, SlackError
from tests.servers.slack.server import SlackServer

__all__ = ["ApiCall", "Copies", "Delivery", "Fault", "Json", "Outcome", "SlackError", "SlackServer"]
