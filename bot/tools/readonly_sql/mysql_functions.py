"""Functions of MySQL and MariaDB that only compute, and words before a parenthesis that are no functions.

A function is allowed because it is listed, never because it is not forbidden: SLEEP, BENCHMARK, GET_LOCK, LOAD_FILE,
SETVAL and whatever a later release brings are refused for being absent. Absent on purpose, too: LAST_INSERT_ID and
UUID_SHORT (they change a counter), PASSWORD and ENCRYPT, DES_ENCRYPT (it reads a key file), and every WAIT.

Sources: ``information_schema.sql_functions`` of MariaDB 10.11 and https://mariadb.com/kb/en/function-reference/;
https://dev.mysql.com/doc/refman/8.4/en/built-in-function-reference.html (from documentation, never run).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Flavor = Literal["mysql", "mariadb"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BOTH = _words(
    """
    abs acos adddate addtime aes_decrypt aes_encrypt ascii asin atan atan2 avg bin bit_and bit_count bit_length bit_or
    bit_xor cast ceil ceiling char char_length character_length charset coalesce coercibility collation compress concat
    concat_ws connection_id conv convert convert_tz cos cot count crc32 cume_dist curdate current_date current_role
    current_time current_timestamp current_user curtime database date date_add date_format date_sub datediff day dayname
    dayofmonth dayofweek dayofyear default degrees dense_rank elt exp export_set extract extractvalue field find_in_set
    first_value floor format found_rows from_base64 from_days from_unixtime get_format greatest group_concat hex hour if
    ifnull inet6_aton inet6_ntoa inet_aton inet_ntoa insert instr interval is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6
    isnull json_array json_array_append json_array_insert json_arrayagg json_contains json_contains_path json_depth
    json_extract json_insert json_keys json_length json_merge_patch json_merge_preserve json_object json_objectagg
    json_overlaps json_pretty json_quote json_remove json_replace json_search json_set json_table json_type json_unquote
    json_valid json_value lag last_day last_value lcase lead least left length ln localtime localtimestamp locate log
    log10 log2 lower lpad ltrim make_set makedate maketime match max md5 microsecond mid min minute mod month monthname
    now nth_value ntile nullif oct octet_length ord percent_rank period_add period_diff pi position pow power quarter
    quote radians rand random_bytes rank regexp_instr regexp_replace regexp_substr repeat replace reverse right round
    row_count row_number rpad rtrim schema sec_to_time second session_user sha sha1 sha2 sign sin soundex space sqrt std
    stddev stddev_pop stddev_samp str_to_date strcmp subdate substr substring substring_index subtime sum sysdate
    system_user tan time time_format time_to_sec timediff timestamp timestampadd timestampdiff to_base64 to_days
    to_seconds trim truncate ucase uncompress uncompressed_length unhex unix_timestamp updatexml upper user utc_date
    utc_time utc_timestamp uuid values var_pop var_samp variance version week weekday weekofyear weight_string year
    yearweek
    mbrcontains mbrdisjoint mbrequals mbrintersects mbroverlaps mbrtouches mbrwithin
    st_area st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_buffer st_centroid st_contains st_convexhull
    st_crosses st_difference st_dimension st_disjoint st_distance st_distance_sphere st_endpoint st_envelope st_equals
    st_exteriorring st_geomcollfromtext st_geometryn st_geometrytype st_geomfromgeojson st_geomfromtext st_geomfromwkb
    st_interiorringn st_intersection st_intersects st_isclosed st_isempty st_issimple st_length st_linefromtext
    st_numgeometries st_numinteriorrings st_numpoints st_overlaps st_pointfromtext st_pointn st_polyfromtext st_srid
    st_startpoint st_symdifference st_touches st_union st_within st_x st_y
    point linestring polygon multipoint multilinestring multipolygon geometrycollection
    """
)
_MARIADB = _words(
    """
    add_months chr column_check column_exists column_get column_json column_list crc32c decode_histogram json_compact
    json_detailed json_equals json_exists json_loose json_merge json_normalize json_query lengthb median
    natural_sort_key nvl nvl2 percentile_cont percentile_disc rownum sformat sys_guid to_char
    """
)
_MYSQL = _words(
    """
    any_value bin_to_uuid format_bytes mbrcoveredby format_pico_time grouping is_uuid json_schema_valid
    json_schema_validation_report json_storage_free json_storage_size ps_current_thread_id ps_thread_id regexp_like
    roles_graphml st_collect st_frechetdistance st_geohash st_hausdorffdistance st_isvalid st_latfromgeohash st_latitude
    st_lineinterpolatepoint st_lineinterpolatepoints st_longfromgeohash st_longitude st_makeenvelope st_pointatdistance
    st_pointfromgeohash st_simplify st_swapxy st_transform st_validate uuid_to_bin
    """
)
ALLOWED: Mapping[Flavor, frozenset[str]] = {"mariadb": _BOTH | _MARIADB, "mysql": _BOTH | _MYSQL}
"""Built-in functions by flavor. A name of the other flavor only may belong to a stored function here."""

RESERVED_BEFORE_PAREN = _words(
    """
    all and as between by case distinct distinctrow div else except exists from group having in index intersect
    join key like not on or over partition regexp rlike row select straight_join then union using when where
    with xor
    """
)
"""Words of the grammar that a parenthesis may follow; reserved, so no function can have one of these names."""

TYPES = _words(
    """
    bigint binary bit blob char character dec decimal double enum fixed float int integer longtext mediumint mediumtext
    national nchar numeric nvarchar real set smallint text tinyint varbinary varchar varying datetime
    """
)
"""Types that may have a size in parentheses. Reserved, too (as tried on MariaDB 10.11)."""

BEFORE_QUERY = _words("any some lateral")
"""No function only where a query follows at once: a query as an argument has parentheses of its own."""

BODY_WORDS = _words("elseif return while set do end declare begin loop")
"""Words of a stored function's body that a parenthesis may follow."""

WRITERS = _words(
    """
    alter analyze call create delete drop dumpfile grant infile insert into kill load lock optimize outfile procedure
    purge release rename replace resignal revoke set signal trigger unlock update
    """
)
"""Reserved words that no reading statement has, outside of quotes. INSERT( and REPLACE( are functions, too."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("sleep", "benchmark"), "only passes time on the server"),
    **dict.fromkeys(("get_lock", "release_lock", "release_all_locks"), "takes or gives back a lock"),
    "load_file": "reads a file of the server",
    **dict.fromkeys(("nextval", "lastval", "setval"), "works a sequence"),
    **dict.fromkeys(("last_insert_id", "uuid_short"), "changes a counter"),
    **dict.fromkeys(
        ("master_pos_wait", "source_pos_wait", "master_gtid_wait", "wait_for_executed_gtid_set"), "waits for a replica"
    ),
    **dict.fromkeys(("des_decrypt", "des_encrypt"), "reads a key file of the server"),
    **dict.fromkeys(("password", "old_password", "encrypt"), "makes a password's hash"),
    **dict.fromkeys(("sys_exec", "sys_eval", "sys_set", "lib_mysqludf_sys_info"), "starts programs on the server"),
}
"""Why some well-known functions are not allowed; all that is not listed as allowed is refused in any case."""

LONGEST_REPEAT = 100_000
"""The largest literal count that REPEAT, SPACE, LPAD and RPAD may have: one call on a huge text ends at no time-out."""
