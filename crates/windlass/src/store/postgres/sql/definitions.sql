-- Definitions.
--
-- $1 int[]: their numbers
select d.id, d.body::text from windlass.definitions d where d.id = any($1);
