-- The numbers of limits.
--
-- $1 text[]: names
select l.id, l.name from windlass.limits l where l.name = any($1);
