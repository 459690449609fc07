-- A small shop, as an application might have made it: orders.customer_id has a foreign key and no index.
create table customers (
  id integer generated always as identity primary key,
  name text not null,
  email text not null unique,
  city text not null,
  joined_on date not null
);

create table products (
  id integer generated always as identity primary key,
  name text not null,
  category text not null,
  price numeric(10, 2) not null
);

create table orders (
  id bigint generated always as identity primary key,
  customer_id integer not null,
  status text not null,
  placed_at timestamptz not null,
  total numeric(10, 2) not null,
  note text not null
);

create table order_items (
  order_id bigint not null,
  line smallint not null,
  product_id integer not null,
  quantity integer not null,
  price numeric(10, 2) not null
);

insert into customers (name, email, city, joined_on)
select 'Customer ' || g, 'customer' || g || '@shop.example',
       (array['Oslo', 'Lyon', 'Porto', 'Turin', 'Graz', 'Ghent', 'Bergen', 'Leeds'])[1 + g % 8],
       current_date - (g % 1500)
from generate_series(1, 20000) as g;

insert into products (name, category, price)
select 'Product ' || g, (array['tools', 'garden', 'kitchen', 'books', 'music'])[1 + g % 5], 1 + (g * 37 % 9900) / 100.0
from generate_series(1, 1000) as g;

-- The multipliers are primes, so neighbouring orders belong to customers far apart, as in a real shop.
insert into orders (customer_id, status, placed_at, total, note)
select 1 + (g::bigint * 7919) % 20000, (array['paid', 'packed', 'sent', 'delivered', 'returned'])[1 + g % 5],
       now() - make_interval(mins => 250000 - g), 5 + (g::bigint * 104729 % 49500) / 100.0,
       md5(g::text) || ' leave at the door, ring twice'
from generate_series(1, 250000) as g;

insert into order_items (order_id, line, product_id, quantity, price)
select 1 + g % 250000, 1, 1 + (g::bigint * 6007) % 1000, 1 + g % 4, 1 + (g * 37 % 9900) / 100.0
from generate_series(1, 250000) as g;

alter table order_items add primary key (order_id, line);
alter table orders add foreign key (customer_id) references customers (id);
