"""What is tried on Postgres: attacks and abuses, statements that only time-outs and caps can hold, and honest reads.

``{file}`` is a path that the server could write to.
"""

# ruff: noqa: E501 (one statement a line)
from __future__ import annotations

FIELD = """
create table lab_acct (id int primary key, bal int, note text default 'a note');
insert into lab_acct select g, g * 10 from generate_series(1, 10) as g;
create table lab_txt (t varchar, at timestamptz default now(), doc jsonb);
insert into lab_txt values ('A', '2026-03-01 10:00+00', '{"k": [1, 2], "s": "x"}'),
                           ('b', '2026-03-02 11:00+00', '{"k": [3]}');
create sequence hseq;
create function hwrite() returns int language plpgsql as
  $$ begin insert into lab_acct values (96, 1); return 1; end $$;
create function hwrite_def() returns int language plpgsql security definer as
  $$ begin insert into lab_acct values (95, 1); return 1; end $$;
-- What READ ONLY does not stop: if it runs, no error comes.
create function hact() returns int language plpgsql as $$ begin perform pg_advisory_lock(42); return 1; end $$;
create function peek_def() returns text language sql stable security definer as
  $$ select string_agg(rolpassword, ',') from pg_authid $$;
create function tidy(int) returns int language sql immutable as $$ select $1 + 1 $$;
create function mixed(int) returns int language sql immutable as $$ select $1 $$;
create function mixed(text) returns int language plpgsql as $$ begin return hact(); end $$;
create function hrow(lab_acct) returns int language plpgsql as $$ begin return hact(); end $$;
create function htab() returns table (a int) language plpgsql as $$ begin return query select hact(); end $$;
create function run_sql(text) returns text language plpgsql as $$ begin execute $1; return 'done'; end $$;
create procedure hproc() language plpgsql as $$ begin insert into lab_acct values (94, 1); end $$;
create function op_write(int, int) returns bool language plpgsql as $$ begin perform hact(); return true; end $$;
create operator === (function = op_write, leftarg = int, rightarg = int);
create function agg_write(int, int) returns int language plpgsql as $$ begin perform hact(); return $2; end $$;
create aggregate evil_sum(int) (sfunc = agg_write, stype = int, initcond = '0');
create type wrapped as (v int);
create function wrap_write(wrapped) returns money language plpgsql as $$ begin return hact()::money; end $$;
create cast (wrapped as money) with function wrap_write(wrapped);
create function dom_write(int) returns bool language plpgsql as $$ begin perform hact(); return true; end $$;
create domain evil_dom as int check (dom_write(value));
create domain sleepy_dom as int check (pg_sleep(0.01)::text = '');
create domain outer_dom as int check (value::evil_dom > 0);
create domain fair_dom as int check (value > 0);
create type holder as (d evil_dom);
create view v_write as select hact() as a;
create view v_sleep as select pg_sleep(0.01)::text as a;
create view v_on_v as select a from v_sleep;
create view v_auth as select rolname, rolpassword from pg_authid;
create view v_lock as select id from lab_acct for update;
create view v_fair as select id, bal from lab_acct where id > 2;
create function public.lower(varchar) returns text language plpgsql as $$ begin perform hact(); return 'x'; end $$;
create function public.pg_partition_tree(text) returns int language plpgsql as $$ begin return hact(); end $$;
create view public.pg_stat_database as select hact() as datid, 'spoofed'::text as datname;
create table public.pg_class (relname text);
insert into public.pg_class values ('spoofed');
create type mood as enum ('sad', 'ok', 'happy');
create schema side;
create table side.things (id int, kind mood);
insert into side.things values (1, 'ok');
create function side.write_too() returns int language plpgsql as $$ begin return hact(); end $$;
create function defaulted(a int default hact()) returns int language sql stable as $$ select $1 $$;
create function slept(a text default pg_sleep(0.01)::text) returns text language sql stable as $$ select $1 $$;
create function on_domain(evil_dom) returns int language sql stable as $$ select 1 $$;
create function gives_domain() returns evil_dom language sql stable as $$ select 1 $$;
create view a_view_whose_name_is_exactly_as_long_as_a_name_may_be_at_most_x as select hact() as a;
select lo_from_bytea(4242, 'large object');
"""

PROBES: dict[str, str] = {
    "multi: commit;drop": "commit; create table if not exists hx(a int); select 1",
    "leading comment write": "/* select */ insert into lab_acct values (99,1)",
    "modifying CTE": "with x as (delete from lab_acct where id=10 returning *) select * from x",
    "select into": "select * into hx2 from lab_acct",
    "for update": "select * from lab_acct for update",
    "create temp table": "create temp table tt as select 1",
    "select into temp": "select 1 as a into temp tt2",
    "copy to program": "copy (select 1) to program 'cat >{file}'",
    "copy to file": "copy (select 1) to '{file}'",
    "copy to stdout": "copy (select 1) to stdout",
    "explain analyze delete": "explain analyze delete from lab_acct",
    "explain analyze sleep": "explain analyze select pg_sleep(0.01)",
    "pg_terminate_backend": "select pg_terminate_backend(pid) from pg_stat_activity where application_name='victim'",
    "pg_read_file": "select left(pg_read_file('/etc/hostname'),1)",
    "lo_import": "select lo_import('/etc/hostname')",
    "lo_export": "select lo_export(4242,'{file}')",
    "pg_ls_dir": "select count(*) from pg_ls_dir('/')",
    "set_config rw": "select set_config('transaction_read_only','off',true)",
    "set txn rw": "set transaction read write",
    "set session rw": "set session characteristics as transaction read write",
    "reset statement_timeout": "select set_config('statement_timeout','0',false)",
    "advisory lock": "select pg_advisory_lock(42)",
    "nextval": "select nextval('hseq')",
    "pgss reset": "select pg_stat_statements_reset()",
    "pg_stat_reset": "select pg_stat_reset()",
    "switch wal": "select pg_switch_wal()",
    "reload conf": "select pg_reload_conf()",
    "rotate log": "select pg_rotate_logfile()",
    "query_to_xml": "select query_to_xml('select count(*) from pg_authid',true,true,'')",
    "volatile func writes": "select hwrite()",
    "security definer write": "select hwrite_def()",
    "do block": "do $$ begin perform pg_sleep(0.01); end $$",
    "do commit write": "do $$ begin commit; insert into lab_acct values(98,1); end $$",
    "notify": "select pg_notify('c','x')",
    "listen": "listen c",
    "vacuum": "vacuum lab_acct",
    "checkpoint": "checkpoint",
    "load lib": "load 'auto_explain'",
    "prepare+execute": "prepare pz as insert into lab_acct values(97,1); execute pz",
    "create index conc": "create index concurrently on lab_acct(bal)",
    "alter system": "alter system set work_mem='4MB'",
    "pg_sleep huge": "select pg_sleep(0.2)",
    "pg_shadow read": "select rolpassword from pg_authid limit 1",
    "pg_hba read": "select count(*) from pg_hba_file_rules",
}
"""What showed which guard stops what; the one that is missing here, a huge generate_series, is in ``BOUNDED``."""

_STATEMENTS = r"""
insert into lab_acct values (50, 1)
insert into lab_acct select 51, 1 returning *
update lab_acct set bal = 0
delete from lab_acct
merge into lab_acct a using (select 1 as id) s on a.id = s.id when matched then delete
truncate lab_acct
create table t1 (a int)
create unlogged table t1 as values (1)
create view v1 as select 1
create materialized view m1 as select 1
create function f1() returns int language sql as 'select 1'
create trigger t before insert on lab_acct for each row execute function suppress_redundant_updates_trigger()
create schema s1
create role r1 superuser
create extension if not exists pg_stat_statements
create rule r1 as on insert to lab_acct do instead nothing
create policy p1 on lab_acct using (true)
create publication p1 for all tables
create tablespace ts location '/tmp'
create database d1
create event trigger e1 on ddl_command_start execute function hwrite()
alter table lab_acct add column x int
alter role current_user set statement_timeout = 0
alter database postgres set work_mem = '1GB'
alter default privileges grant all on tables to public
drop table lab_acct
drop owned by current_user
reassign owned by current_user to current_user
grant all on lab_acct to public
revoke all on lab_acct from public
comment on table lab_acct is 'changed'
reindex table lab_acct
cluster lab_acct using lab_acct_pkey
refresh materialized view m1
analyze lab_acct
discard all
reset all
set role postgres
set local statement_timeout = 0
set session authorization postgres
begin
start transaction read write
commit
end
rollback
abort
savepoint s
release savepoint s
prepare transaction 'x'
commit prepared 'x'
lock table lab_acct in access exclusive mode
declare c cursor with hold for select * from lab_acct
fetch all from hermod_rows
move forward all in hermod_rows
close all
execute hermod_statement
deallocate all
prepare p1 as select 1
notify c, 'x'
unlisten *
explain select 1
explain (analyze, buffers) select 1
explain verbose insert into lab_acct values (1)
call hproc()
copy lab_acct from '/etc/passwd'
copy lab_acct from program 'id'
import foreign schema public from server s into public
security label on table lab_acct is 'x'
alter system reset all
show all
"""

_SNEAKED = r"""
;;
-- nothing but a comment
select 1; drop table lab_acct
select 1;; drop table lab_acct
select 1 /* ; */ ; drop table lab_acct --
select 1 /* /* nested */ ; */; drop table lab_acct
select '\'; drop table lab_acct --'
select E'\'; drop table lab_acct --'; commit
select $$;$$; drop table lab_acct
select $a$ $$ $a$; drop table lab_acct
rollback; set session characteristics as transaction read write; insert into lab_acct values (60, 1)
select 1; commit; begin; insert into lab_acct values (61, 1); commit
-- select\ninsert into lab_acct values (62, 1)
/* c */ -- d\n/* e */ delete from lab_acct
(delete from lab_acct returning *)
(((table lab_acct))) for update
select * from lab_acct for share
select * from lab_acct for no key update skip locked
select * from lab_acct for key share nowait
select * from (select * from lab_acct for update) x
with x as (select * from lab_acct for update) select * from x
select (select id from lab_acct limit 1 for update)
with x as (insert into lab_acct values (63, 1) returning *) select 1
with x as (update lab_acct set bal = 1 returning *) select 1
with x as materialized (delete from lab_acct) select 1
with recursive x as (select 1 union all select 2), y as (insert into lab_acct values (64, 1) returning 1) select * from x
select * from (with z as (delete from lab_acct returning 1) select * from z) q
select 1 union all (with z as (delete from lab_acct returning 1) select * from z)
select * into unlogged t2 from lab_acct
select 1 as a into table t3
create table t4 as select * from lab_acct
select 1 where exists (select pg_sleep(0.1)) union select 2 into t5
select pg_catalog.pg_sleep(0.2)
select PG_SLEEP(0.2)
select "pg_sleep"(0.2)
select U&"pg\005fsleep"(0.2)
select U&"pg!005fsleep" uescape '!' (0.2)
select pg_sleep /* ( */ ( -- )\n 0.2)
select postgres.pg_catalog.pg_sleep(0.2)
select pg_sleep(secs => 0.2)
select (0.2::float8).pg_sleep
select (select 0.2::float8).pg_sleep
select (x.a).pg_sleep from (select 0.2::float8 as a) x
select (0.2::float8).pg_sleep.nothing
select 1 \gexec
\! id
select 1 into outfile '{file}'
"""

_PLACES = r"""
select * from pg_sleep(0.2)
select * from pg_sleep(0.2) with ordinality
select * from rows from (generate_series(1, 2), pg_sleep(0.2)) as r
select * from lab_acct, lateral (select pg_sleep(0.01)) s
select * from lab_acct where pg_sleep(0.01) is not null
select * from lab_acct a join lab_acct b on pg_sleep(0.01) is not null
select id from lab_acct order by pg_sleep(0.01)::text
select count(*) from lab_acct group by pg_sleep(0.01)::text
select count(*) from lab_acct having pg_sleep(0.01)::text = ''
select id from lab_acct limit (select length(pg_sleep(0.01)::text))
select id from lab_acct offset (select length(pg_sleep(0.01)::text))
select case when true then pg_sleep(0.01)::text end
select coalesce(null, pg_sleep(0.01)::text)
select nullif(pg_sleep(0.01)::text, '')
select greatest('', pg_sleep(0.01)::text)
select array[pg_sleep(0.01)::text]
select row(pg_sleep(0.01))
select (array[1])[length(pg_sleep(0.01)::text) + 1]
select sum(id) over (partition by pg_sleep(0.01)::text) from lab_acct
select sum(id) over w from lab_acct window w as (order by pg_sleep(0.01)::text)
select sum(id) over (order by id rows between length(pg_sleep(0.01)::text) preceding and current row) from lab_acct
select count(*) filter (where pg_sleep(0.01) is not null) from lab_acct
select string_agg(note, ',' order by pg_sleep(0.01)::text) from lab_acct
select percentile_cont(0.5) within group (order by length(pg_sleep(0.01)::text)) from lab_acct
select distinct on (pg_sleep(0.01)::text) id from lab_acct
values (pg_sleep(0.01))
select 1 where '' in (pg_sleep(0.01)::text)
select 1 where '' = any (array[pg_sleep(0.01)::text])
select 1 where exists (select pg_sleep(0.01))
select 1 where (select pg_sleep(0.01)::text) is not null
select 1 union select length(pg_sleep(0.01)::text)
with recursive x as (select 1 as n union all select n + length(pg_sleep(0.01)::text) from x where n < 2) select * from x
select pg_sleep(0.01)::text collate "C"
select * from lab_acct tablesample bernoulli (length(pg_sleep(0.01)::text) + 50)
select * from lab_acct tablesample hwrite (50)
select concat(variadic array[pg_sleep(0.01)::text])
select extract(epoch from now() + (pg_sleep(0.01)::text || '1s')::interval)
select grouping(id) from lab_acct group by grouping sets ((id), (pg_sleep(0.01)::text))
"""

_FUNCTIONS = r"""
select pg_sleep_for('0.2 s')
select pg_sleep_until(now() + '0.2 s')
select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'victim'
select pg_log_backend_memory_contexts(pg_backend_pid())
select pg_advisory_lock_shared(42)
select pg_advisory_xact_lock(42)
select pg_try_advisory_lock(42)
select pg_advisory_unlock_all()
select setval('hseq', 99)
select currval('hseq')
select set_config('role', 'postgres', false)
select set_config('search_path', 'side', true)
select setseed(0.5)
select lo_creat(-1)
select lo_create(4343)
select lo_from_bytea(0, 'x')
select lo_put(4242, 0, 'y')
select lo_unlink(4242)
select lo_get(4242)
select lo_open(4242, 131072)
select loread(0, 10)
select lowrite(0, 'x')
select pg_read_binary_file('/etc/hostname')
select pg_read_file('postgresql.auto.conf')
select * from pg_stat_file('/etc/hostname')
select * from pg_ls_logdir()
select * from pg_ls_replslotdir('x')
select pg_current_logfile()
select pg_stat_reset_shared('bgwriter')
select pg_stat_reset_single_table_counters('lab_acct'::regclass)
select pg_stat_reset_slru('notify')
select pg_stat_clear_snapshot()
select pg_logical_emit_message(false, 'p', 'x')
select pg_logical_emit_message(true, 'p', 'x')
select pg_create_restore_point('r')
select pg_export_snapshot()
select pg_promote()
select pg_wal_replay_pause()
select pg_create_physical_replication_slot('s')
select pg_create_logical_replication_slot('s', 'pgoutput')
select pg_drop_replication_slot('s')
select * from pg_logical_slot_get_changes('s', null, null)
select pg_replication_origin_create('o')
select pg_replication_origin_drop('o')
select pg_backup_start('b')
select pg_import_system_collations('public')
select brin_summarize_new_values('lab_acct_pkey'::regclass)
select gin_clean_pending_list('lab_acct_pkey'::regclass)
select txid_current()
select pg_current_xact_id()
select pg_stat_statements_reset(0, 0, 0)
select table_to_xml('pg_catalog.pg_authid', true, true, '')
select schema_to_xml('pg_catalog', true, true, '')
select database_to_xml(true, true, '')
select query_to_xmlschema('select hwrite()', true, true, '')
select cursor_to_xml('hermod_rows', 1, true, true, '')
select * from ts_stat('select hwrite()::text::tsvector')
select ts_rewrite('a'::tsquery, 'select hwrite()::text::tsquery, ''b''::tsquery')
select * from crosstab('select hwrite(), 1, 2') as t (a int, b int, c int)
select * from dblink('host=/tmp', 'select 1') as t (a int)
select binary_upgrade_set_next_pg_type_oid(1::oid)
select pg_input_is_valid('1', 'evil_dom')
select pg_config()
select pg_extension_config_dump('lab_acct'::regclass, '')
select currtid2('lab_acct', '(0,1)'::tid)
select pg_nextoid('pg_catalog.pg_class'::regclass, 'oid', 'pg_class_oid_index'::regclass)
select plpgsql_call_handler()
select no_such_function(1)
select pg_temp.hwrite()
"""

_OBJECTS = r"""
select side.write_too()
select public.hwrite()
select mixed(1)
select hrow(a) from lab_acct a
select a.hrow from lab_acct a
select (a).hrow from lab_acct a
select x.hrow from (select * from lab_acct) x, lab_acct
select (x.a).hrow from (select a from lab_acct a) x
select lab_acct.hrow from lab_acct
select * from htab()
select (htab()).a
select run_sql('delete from lab_acct')
select peek_def()
select 1 === 2
select 1 operator(public.===) 2
select id from lab_acct order by id using ===
select 1 where 1 === any (array[2])
select evil_sum(id) from lab_acct
select evil_sum(id) over () from lab_acct
select row(1)::wrapped::money
select cast(row(1)::wrapped as money)
select money(row(1)::wrapped)
select row(1)::wrapped
select 1::evil_dom
select evil_dom(1)
select 1::sleepy_dom
select 1::outer_dom
select '{1,2}'::evil_dom[]
select row(1)::holder
select json_populate_record(null::holder, '{"d": 1}')
select * from jsonb_to_record('{"d": 1}') as x (d evil_dom)
select * from jsonb_to_recordset('[{"d": 1}]') as x (d evil_dom)
select * from json_table('[1]'::jsonb, '$[*]' columns (d evil_dom path '$'))
select * from v_write
select * from v_sleep
select * from v_on_v
select * from (select * from v_on_v) x
select count(*) from v_write
select * from v_lock
table v_auth
select lower('A'::varchar)
select lower(t) from lab_txt
select public.pg_partition_tree('x')
select pg_partition_tree('lab_acct')
select * from public.pg_stat_database
select defaulted()
select slept()
select on_domain(1)
select gives_domain()
select * from a_view_whose_name_is_exactly_as_long_as_a_name_may_be_at_most_x
select * from a_view_whose_name_is_exactly_as_long_as_a_name_may_be_at_most_xyz
select * from "a_view_whose_name_is_exactly_as_long_as_a_name_may_be_at_most_xyz"
select * from no_such_table
with x as (select 1) select * from y
with v_write as (select 1 as a) select * from v_write, public.v_write
"""

_SECRETS = r"""
table pg_authid
select * from only pg_authid
select * from pg_catalog.pg_authid
select * from "pg_authid"
select (a).rolpassword from pg_authid a
select a::text from pg_authid a
select 1 from lab_acct where exists (select 1 from pg_authid where rolpassword like 'SCRAM%')
with x as (select * from pg_shadow) select * from x
select passwd from pg_shadow
select * from pg_user_mappings
select umoptions from pg_user_mapping
select * from information_schema.user_mapping_options
select * from information_schema._pg_user_mappings
select * from pg_hba_file_rules()
select * from pg_ident_file_mappings
select * from pg_file_settings
select * from pg_show_all_file_settings()
select * from pg_stat_ssl
select * from pg_stat_gssapi
select data from pg_largeobject
select stavalues1 from pg_statistic
select stxdndistinct from pg_statistic_ext_data
select subconninfo from pg_subscription
select * from pg_db_role_setting
show primary_conninfo
show archive_command
show ssl_passphrase_command
select current_setting('primary_conninfo')
select current_setting('RESTORE_COMMAND', true)
select current_setting('app.jwt_secret', true)
select ('primary_conninfo'::text).current_setting
select current_setting(name) from (select 'primary_conninfo' as name) x
select current_setting('primary_' || 'conninfo')
select (name).current_setting from (select 'primary_conninfo'::text as name) x
"""


def _lines(text: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in text.strip("\n").splitlines()]


ODD: dict[str, str] = {
    "nothing": "",
    "blanks": " \n\t ",
    "a NUL": "select 1\0; drop table lab_acct",
    "half a surrogate pair": "select '\ud800'",
    "25,000 additions": "select " + "+".join(["1"] * 24_900),
    "deep parentheses": "select " + "(" * 20_000 + "1" + ")" * 20_000,
    "deep subqueries": "select " + "(select " * 200 + "1" + ")" * 200,
    "deep casts": "select 1" + "::int" * 2_000,
    "a long list": "select 1 where 1 in (" + ",".join(["1"] * 12_000) + ")",
    "too long": "select '" + "x" * 60_000 + "'",
    "an open text": "select 'abc",
    "an open comment": "select 1 /* abc",
    "an open dollar quote": "select $x$ abc",
    "a bom": "\ufeffselect 1; drop table lab_acct",
    "a parameter that is not passed": "select $1::int",
    "a jump in the parameters": "select $2::int",
}

ATTACKS: dict[str, str] = {
    **PROBES,
    **{
        line.replace("\n", " ")[:90]: line
        for group in (_STATEMENTS, _SNEAKED, _PLACES, _FUNCTIONS, _OBJECTS, _SECRETS)
        for line in _lines(group)
    },
    **ODD,
}
"""Everything that has to be refused, by a name for the test."""

BOUNDED: dict[str, str] = {
    "generate_series huge": "select count(*) from generate_series(1,2000000)",
    "two million rows": "select * from generate_series(1, 2000000)",
    "a cross join without end": "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b",
    "endless recursion": "with recursive x as (select 1 as n union all select n + 1 from x) select count(*) from x",
    "endless rows": "with recursive x as (select 1 as n union all select n + 1 from x) select * from x",
    "a gigantic text": "select repeat('x', 200000000)",
    "a thousand large texts": "select repeat('ä', 100000) from generate_series(1, 1000)",
    "many wide columns": "select " + ", ".join(["repeat('x', 10000)"] * 500) + " from generate_series(1, 100)",
    "large binary data": "select decode(repeat('00', 20000000), 'hex') from generate_series(1, 5)",
    "a gigantic array": "select array_agg(g) from generate_series(1, 500000) g",
    "a slow regular expression": "select repeat('a', 40) || 'b' ~ '^(a+)+$' from generate_series(1, 1000000)",
    "a sort that spills": "select g from generate_series(1, 3000000) g order by md5(g::text)",
    "a slow hash": "select md5(repeat('x', 10000000)) from generate_series(1, 10000)",
    "many numbers": "select 7::numeric ^ 100000 from generate_series(1, 1000)",
    "columns of the catalog crossed": "select count(*) from pg_attribute a, pg_attribute b, pg_attribute c",
}
"""What only reads, and would be too much without time-outs and caps."""

_READS = r"""
select 1
-- a comment first\nselect 1
/* a comment */ select 1 /* and one more */ ;
  select 1 ;
table lab_acct
values (1), (2)
show work_mem
show time zone
show transaction isolation level
select
select from lab_acct
select * from lab_acct order by id
select id, bal from public.lab_acct where id in (1, 2, 3)
select count(*), sum(bal), avg(bal), min(note), max(note) from lab_acct
select id % 2 as odd, count(*) from lab_acct group by 1 having count(*) > 1 order by 1
select now() at time zone 'utc'
select now() at time zone interval '2 hours'
select extract(epoch from now()), extract(day from date '2026-03-01')
select date_trunc('day', at), count(*) from lab_txt group by 1 order by 1
select at::date, at + interval '1 day', age(at) from lab_txt
select to_char(at, 'YYYY-MM-DD'), to_timestamp(0), make_date(2026, 3, 1) from lab_txt
select generate_series(now() - interval '1 day', now(), interval '1 hour')
select percentile_cont(0.5) within group (order by bal) from lab_acct
select percentile_disc(array[0.5, 0.9]) within group (order by bal) from lab_acct
select mode() within group (order by bal) from lab_acct
select row_number() over (order by id), rank() over (partition by id % 2 order by bal desc) from lab_acct
select id, lag(bal) over w, sum(bal) over (w rows between 2 preceding and current row) from lab_acct window w as (order by id)
select ntile(4) over (order by id), first_value(bal) over (order by id) from lab_acct
select * from lab_acct a, lateral (select count(*) as n from lab_acct b where b.id < a.id) x
select * from lab_acct a left join lab_txt t on t.t = a.note
select * from lab_acct a join lab_acct b using (id)
select * from lab_acct natural join lab_acct b
select * from lab_acct full join lab_txt on false cross join (values (1)) v (n)
with x as (select * from lab_acct) select * from x
with x as materialized (select id from lab_acct), y as not materialized (select 2 as n) select * from x, y
with recursive t (n) as (values (1) union all select n + 1 from t where n < 5) select sum(n) from t
with recursive t as (select 1 as n union all select n + 1 from t where n < 5) search depth first by n set o select * from t
select distinct on (id % 2) id from lab_acct order by id % 2, id
select id from lab_acct union select 99 except select 1 intersect select 1
select * from generate_series(1, 10) with ordinality
select * from rows from (generate_series(1, 3), unnest(array['a', 'b'])) as r (n, t)
select unnest(array[1, 2, 3]), array_agg(id order by id desc) from lab_acct group by 1
select (array[1, 2, 3])[2], (array[1, 2, 3])[1:2], array_length(array[1], 1)
select doc -> 'k' -> 0, doc ->> 's', doc #>> '{k,0}', doc ? 's', doc @> '{"s": "x"}' from lab_txt
select jsonb_path_query(doc, '$.k[*] ? (@ > 1)') from lab_txt
select jsonb_path_exists(doc, '$.k[*] ? (@ > 1)'), doc @? '$.s' from lab_txt
select jsonb_agg(doc), json_build_object('a', 1), jsonb_set('{}', '{a}', '1') from lab_txt
select * from jsonb_to_recordset('[{"a": 1, "b": "x"}]') as x (a int, b text)
select key, value from lab_txt, jsonb_each(doc)
select case when bal > 50 then 'much' when bal is null then 'none' else 'little' end from lab_acct
select coalesce(note, ''), nullif(bal, 10), greatest(id, bal), least(id, bal) from lab_acct
select note like 'a%', note ilike '%N%', note ~* 'NOTE', note similar to 'a%' from lab_acct
select upper(note), length(note), substring(note from 1 for 2), position('n' in note), trim(both ' ' from note), overlay(note placing 'x' from 1) from lab_acct
select regexp_replace(note, 'n', 'm', 'g'), split_part(note, ' ', 1), string_to_array(note, ' ') from lab_acct
select string_agg(note, ',' order by id) filter (where id < 3) from lab_acct
select count(*) filter (where bal > 50), bool_and(bal > 0), every(id > 0) from lab_acct
select grouping(id), id, sum(bal) from lab_acct group by rollup (id)
select id, sum(bal) from lab_acct group by grouping sets ((id), ())
select random() between 0 and 1, gen_random_uuid() is not null, clock_timestamp() > now()
select * from lab_acct tablesample bernoulli (50) repeatable (1)
select tidy(bal), mixed from lab_acct, (select 1 as mixed) m
select 5::fair_dom, '1'::numeric(10, 2), cast('x' as varchar(5)), 'ok'::mood
select * from side.things where kind = 'ok' order by kind
select * from v_fair
select current_user, session_user, current_database(), current_schema, version() is not null
select current_setting('work_mem'), current_setting('app.name', true)
select name, setting from pg_settings where name = 'work_mem'
select pid, state, query from pg_stat_activity where pid = pg_backend_pid()
select relname, n_live_tup from pg_stat_user_tables
select pg_size_pretty(pg_total_relation_size('lab_acct')), pg_database_size(current_database()) > 0
select pg_blocking_pids(pg_backend_pid()), pg_is_in_recovery()
select datname from pg_stat_database where datname = current_database()
select count(*) from pg_class
select calls from pg_stat_statements limit 1
select rolname, rolsuper from pg_roles limit 1
select indexdef from pg_indexes where tablename = 'lab_acct'
select column_name, data_type from information_schema.columns where table_name = 'lab_acct'
select pg_get_viewdef('v_fair'::regclass), obj_description('lab_acct'::regclass)
select mode, locktype from pg_locks limit 1
select (select max(id) from lab_acct), exists (select 1 from lab_acct), 5 = any (select id from lab_acct), id > all (array[0]) from lab_acct
select (a).id, (a).*, a.note from lab_acct a
select row(1, 'a'), row(1, 2) = row(1, 2), (1, 2) < (2, 1)
select to_tsvector('english', note) @@ to_tsquery('english', 'note') from lab_acct
select '2026-01-01'::date - '2025-12-01'::date, daterange('2026-01-01', '2026-02-01') @> '2026-01-05'::date
select 'a' || 1 || null, 7 / 2, 7 % 2, 2 ^ 10, |/ 16, @ -5, 5 & 3, 1 << 4
select null is null, true is not false, 1 is distinct from 2, bal between 1 and 5, bal between symmetric 5 and 1 from lab_acct
select id from lab_acct order by note collate "C" desc nulls last, id fetch first 3 rows with ties
select id as "Select", bal "from" from lab_acct
select inet '10.0.0.1' << inet '10.0.0.0/8', md5('x'), encode(sha256('x'), 'hex')
select E'it\'s', 'it''s', $$it's$$, U&'\0041', b'101', x'ff'
select 'a; drop table x', '-- no', '/* no */', '$1', '%s', '%'
select '2026-03-01 10:00+00'::timestamptz, '10:00'::time, '1 day 2 hours'::interval, 'infinity'::date, '-infinity'::timestamp
"""

READS: dict[str, str] = {line.replace("\n", " ")[:90]: line for line in _lines(_READS)}
"""Honest questions; none may be refused."""
