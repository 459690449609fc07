"""The demo: an embedded Postgres with real slow queries."""
