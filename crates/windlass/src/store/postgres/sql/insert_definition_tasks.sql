-- Keeps the tasks of a definition.
--
-- $1 int: the definition   $2 int[]: indices   $3 text[]: names   $4 text[]: kinds
-- $5 int[]: how many parents   $6 int[]: the most attempts
insert into windlass.definition_tasks (definition_id, idx, name, kind, parents, max_attempts)
select $1, k.idx, k.name, k.kind, k.parents, k.max_attempts
from unnest($2::integer[], $3::text[], $4::text[], $5::integer[], $6::integer[])
    as k (idx, name, kind, parents, max_attempts);
