-- Makes limits known.
--
-- $1 text[]: names
insert into windlass.limits (name)
select k.name
from unnest($1::text[]) as k (name)
where not exists (select from windlass.limits l where l.name = k.name)
order by k.name
on conflict do nothing;
