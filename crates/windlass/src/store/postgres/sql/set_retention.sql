-- Sets how long runs are kept that ended in one state; no row if there are too many rules.
--
-- $1 text: the workflow, empty for all   $2 text: the state   $3 bigint, $4 bigint: for how many
-- microseconds they and their keys are kept   $5 boolean: whether they are archived   $6 boolean:
-- whether they go with their dead letters   $7 bigint: the most rules
insert into windlass.retention (
    workflow, state, keep_for, keep_key_for, archives, with_dead_letters
)
select $1, $2, $3 * interval '1 microsecond', $4 * interval '1 microsecond', $5, $6
where (select count(*) from windlass.retention r) < $7
    or exists (select from windlass.retention r where r.workflow = $1 and r.state = $2)
on conflict (workflow, state) do update
set keep_for = excluded.keep_for, keep_key_for = excluded.keep_key_for,
    archives = excluded.archives, with_dead_letters = excluded.with_dead_letters
returning workflow;
