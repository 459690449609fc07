"""Slow-query logs of Postgres, MySQL and MariaDB: read in one pass, summed up by statement shape (docs/slow-logs.md).

Nothing is imported here, so that the process that reads a log stays small.
"""
