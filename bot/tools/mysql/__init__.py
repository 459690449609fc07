"""MySQL and MariaDB: the guarded connection, slow queries and plans (docs/mysql.md)."""
