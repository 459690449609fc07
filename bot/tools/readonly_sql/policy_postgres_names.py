"""Names that the policy for Postgres knows: what may be used although it is volatile, and what never.

From the catalogs of Postgres 15 and 18 and the manual's chapters "Functions and Operators" and "System Catalogs".
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAFE_VOLATILE = _words("""
    array_sample array_shuffle clock_timestamp current_query gen_random_uuid random random_normal timeofday uuidv4
    uuidv7
    pg_blocking_pids pg_collation_actual_version pg_control_checkpoint pg_control_init pg_control_recovery
    pg_control_system pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn pg_database_size
    pg_database_collation_actual_version pg_get_backend_memory_contexts pg_get_shmem_allocations pg_get_wait_events
    pg_get_wal_replay_pause_state pg_get_wal_resource_managers pg_get_wal_summarizer_state pg_indexes_size
    pg_is_in_recovery pg_is_wal_replay_paused pg_jit_available pg_last_committed_xact pg_last_wal_receive_lsn
    pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_lock_status pg_ls_archive_statusdir pg_ls_tmpdir
    pg_ls_waldir pg_notification_queue_usage pg_partition_ancestors pg_partition_tree pg_prepared_xact
    pg_relation_size pg_safe_snapshot_blocking_pids pg_sequence_last_value pg_show_replication_origin_status
    pg_stat_get_backend_io pg_stat_get_backend_wal pg_stat_get_io pg_stat_get_recovery_prefetch
    pg_stat_get_xact_blocks_fetched pg_stat_get_xact_blocks_hit pg_stat_get_xact_function_calls
    pg_stat_get_xact_function_self_time pg_stat_get_xact_function_total_time pg_stat_get_xact_numscans
    pg_stat_get_xact_tuples_deleted pg_stat_get_xact_tuples_fetched pg_stat_get_xact_tuples_hot_updated
    pg_stat_get_xact_tuples_inserted pg_stat_get_xact_tuples_newpage_updated pg_stat_get_xact_tuples_returned
    pg_stat_get_xact_tuples_updated pg_stat_have_stats pg_table_size pg_tablespace_size pg_total_relation_size
    pg_xact_commit_timestamp pg_xact_status txid_status
""")
"""Volatile functions of ``pg_catalog`` that only look, or make a value up."""

SAFE_VOLATILE_OF_EXTENSIONS = _words("""
    pg_stat_statements pg_stat_statements_info
    pgstattuple pgstattuple_approx pgstatindex pgstatginindex pgstathashindex pg_relpages
    pg_buffercache_pages pg_buffercache_summary pg_buffercache_usage_counts pg_buffercache_numa_pages
    pg_freespace pg_visibility pg_visibility_map pg_visibility_map_summary
    pg_wait_sampling_get_current pg_wait_sampling_get_profile pg_wait_sampling_get_history pg_stat_kcache
    uuid_generate_v1 uuid_generate_v1mc uuid_generate_v4 gen_random_bytes gen_random_uuid
    time_bucket_gapfill locf interpolate
""")
"""Volatile functions that only look, where they belong to an extension: whoever owns a schema can take the names."""

NEVER = _words("""
    crosstab crosstab2 crosstab3 crosstab4 connectby xpath_table
    pg_current_xact_id txid_current pg_config pg_input_is_valid pg_input_error_info
""")
"""Functions that are declared stable and still do more than look: they run SQL that is hidden in a text, take a
transaction id, call whatever a type checks, or show the server's paths."""

NEVER_INSIDE = ("_to_xml",)
"""``table_to_xml`` and its like read tables by names that are hidden in texts."""

SECRET_RELATIONS = _words("""
    pg_authid pg_shadow pg_user_mapping pg_user_mappings pg_hba_file_rules pg_ident_file_mappings pg_file_settings
    pg_subscription pg_largeobject pg_statistic pg_statistic_ext_data pg_db_role_setting pg_stat_ssl pg_stat_gssapi
    user_mapping_options _pg_user_mappings pg_dist_authinfo
""")
"""Catalogs and views with passwords, rules of access, or data of tables that the role may not read."""

SECRET_SETTINGS = _words("""
    primary_conninfo ssl_passphrase_command archive_command archive_cleanup_command restore_command
    recovery_end_command
""")
"""Settings that hold, or may hold, a password."""

SECRET_SETTING_WORDS = ("secret", "passw", "token", "credential", "apikey", "api_key", "jwt", "private")
"""What a program's own setting (``app.jwt_secret``) is called when it is none to show."""

SYNTAX_FUNCTIONS = _words("""
    timezone extract date_part overlay position substring normalize is_normalized btrim ltrim rtrim pg_collation_for
    xmlexists overlaps system_user similar_to_escape like_escape
""")
"""What the parser writes for SQL's own syntax, always with ``pg_catalog`` before it; not every version has each."""

COMPARISONS = ("=", "<>", "<", ">", "<=", ">=")
"""Operators that are used without being written: USING, CASE, NATURAL JOIN, BETWEEN."""

READING_NODES = _words("""
    RawStmt SelectStmt ResTarget ColumnRef ColumnDef A_Star A_Const Integer Float Boolean String BitString
    A_Expr BoolExpr NullTest BooleanTest SubLink CaseExpr CaseWhen CoalesceExpr MinMaxExpr SQLValueFunction XmlExpr
    XmlSerialize TypeCast TypeName FuncCall WindowDef SortBy GroupingSet GroupingFunc RangeVar RangeSubselect
    RangeFunction RangeTableSample RangeTableFunc RangeTableFuncCol JoinExpr Alias WithClause CommonTableExpr
    CTESearchClause CTECycleClause A_ArrayExpr A_Indirection A_Indices RowExpr CollateClause ParamRef NamedArgExpr List
    JsonFormat JsonReturning JsonValueExpr JsonOutput JsonArgument JsonBehavior JsonFuncExpr JsonTable JsonTableColumn
    JsonTablePathSpec JsonKeyValue JsonParseExpr JsonScalarExpr JsonSerializeExpr JsonObjectConstructor
    JsonArrayConstructor JsonArrayQueryConstructor JsonAggConstructor JsonObjectAgg JsonArrayAgg JsonIsPredicate
""")
"""Everything that a SELECT's parse tree may have in it; what is not here is refused, also when it is new."""

SAMPLE_METHODS = frozenset({"bernoulli", "system", "system_rows", "system_time"})

WORDS_OF_NODES = {
    "InsertStmt": "INSERT",
    "UpdateStmt": "UPDATE",
    "DeleteStmt": "DELETE",
    "MergeStmt": "MERGE",
    "IntoClause": "SELECT INTO",
    "LockingClause": "FOR UPDATE or FOR SHARE",
    "TransactionStmt": "a transaction command",
    "VariableSetStmt": "SET",
    "ExplainStmt": "EXPLAIN",
    "CopyStmt": "COPY",
    "DoStmt": "DO",
    "CallStmt": "CALL",
    "PrepareStmt": "PREPARE",
    "ExecuteStmt": "EXECUTE",
    "DeallocateStmt": "DEALLOCATE",
    "ListenStmt": "LISTEN",
    "NotifyStmt": "NOTIFY",
    "UnlistenStmt": "UNLISTEN",
    "LockStmt": "LOCK",
    "VacuumStmt": "VACUUM or ANALYZE",
    "CheckPointStmt": "CHECKPOINT",
    "LoadStmt": "LOAD",
    "DeclareCursorStmt": "DECLARE CURSOR",
    "FetchStmt": "FETCH or MOVE",
    "TruncateStmt": "TRUNCATE",
    "CreateTableAsStmt": "CREATE TABLE AS",
    "CreateStmt": "CREATE TABLE",
    "CreateTrigStmt": "CREATE TRIGGER",
    "IndexStmt": "CREATE INDEX",
    "ViewStmt": "CREATE VIEW",
    "RuleStmt": "CREATE RULE",
    "GrantRoleStmt": "GRANT",
    "GrantStmt": "GRANT or REVOKE",
    "RenameStmt": "ALTER ... RENAME",
}
