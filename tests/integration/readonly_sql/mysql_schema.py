"""Tables, views and functions for the statements of ``tests.unit.readonly_sql.mysql_statements``; some of them lie."""

from __future__ import annotations

SCHEMA = (
    "create table customers (id int primary key, name varchar(60), city varchar(40), born date, flags bit(1))",
    "create table orders (id int primary key auto_increment, customer_id int, total decimal(10,2), status varchar(20),"
    " created_at datetime(3), doc json, note text, key by_customer (customer_id), fulltext key words (note))",
    "create table logs (id int primary key, line text) engine = MyISAM",
    "create table `into` (`select` int, `from` int)",
    "create sequence numbers start with 5",
    "insert into customers values (1, 'Ann', 'Oslo', '1980-02-03', 1), (2, 'Bo', 'Rome', '1991-12-31', 0),"
    " (3, 'Çelik', '東京', null, null)",
    "insert into orders (customer_id, total, status, created_at, doc, note) values"
    " (1, 10.50, 'paid', '2026-01-02 03:04:05.678', '{\"items\": [1, 2], \"kind\": \"a\"}', 'red shoes'),"
    " (1, 20.00, 'open', '2026-02-02 03:04:05', '{\"items\": [], \"kind\": \"b\"}', 'blue hat'),"
    " (2, 99.99, 'paid', '2026-02-03 00:00:00', null, 'red hat; drop table orders')",
    "insert into logs values (1, 'started'), (2, 'stopped')",
    "insert into `into` values (1, 2)",
    "create view paid as select id, customer_id, total from orders where status = 'paid'",
    "create function vat(amount decimal(10,2)) returns decimal(10,2) deterministic no sql return amount * 0.25",
    "create function spent(who int) returns decimal(10,2) reads sql data"
    " begin declare s decimal(10,2); select sum(total) into s from orders where customer_id = who; return ifnull(s, 0);"
    " end",
    "create view spending as select id, name, spent(id) as spent from customers",
    # What must never run:
    "create function burn(a int) returns int modifies sql data begin delete from orders; return a; end",
    "create function plain(a int) returns int begin insert into logs values (99, 'plain'); return a; end",
    "create function liar(a int) returns int reads sql data begin insert into logs values (98, 'liar'); return a; end",
    "create function locker(a int) returns int no sql return get_lock('hermod', 0)",
    "create function setter(a int) returns int no sql begin set global long_query_time = 7; return a; end",
    "create function nested(a int) returns int reads sql data return burn(a)",
    "create function filer(a int) returns int reads sql data"
    " begin select 1 into outfile '{dir}/filer.out'; return a; end",
    "create function variable(a int) returns int no sql begin set @leak = a; return a; end",
    "create function columns(a int) returns int begin insert into logs values (97, 'c'); return a; end",
    "create function against(a int) returns int begin insert into logs values (96, 'a'); return a; end",
    "create function `lateral`(a int) returns int begin insert into logs values (95, 'l'); return a; end",
    "create function `of`(a int) returns int begin insert into logs values (94, 'o'); return a; end",
    # Shown with its backslashes taken away, its call stands inside of quotes.
    "create function hider(a int) returns int no sql return length(concat('\\\\', get_lock('hermod', 0), '#\\\\'))",
    "create function `replace`(a int) returns int begin insert into logs values (93, 'r'); return a; end",
    "create function point() returns int begin insert into logs values (92, 'p'); return 1; end",
    "create view burning as select burn(1) as a",
    "create view twice as select a from burning",
    "create view sleepy as select sleep(20) as a",
    "create view tricky as select concat('\\\\', sleep(20), '\\\\', '''') as a, concat('''', sleep(20), '''') as b",
    "create view accounts as select * from mysql.global_priv",
    "create procedure wipe() delete from orders",
)
