"""People's own SQL, run so that it can only read."""
