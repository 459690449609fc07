"""Attacks on the sandbox, and a harness that judges each of them from outside.

``python -m tests.sandbox.battery landlock`` runs them all against a backend, as whatever user starts it. Beside the
sandbox's own modules it needs the standard library and markdown-it only, so it also runs with another interpreter, as
another user, and inside a container.
"""
