-- A page of runs, the newest first.
--
-- $1 text: workflow   $2 text: tenant   $3 text: state   $4 text, $5 text: a pair of metadata
-- $6 timestamptz, $7 uuid: where the previous page ended   $8 bigint: how many
-- Each but the last is null for any.
select r.id, r.workflow, r.version, r.tenant, r.state, r.round, r.open_tasks, r.priority,
    r.created_at, r.ended_at, r.key, r.metadata::text, i.input::text
from windlass.runs r
join windlass.inputs i on i.run_id = r.id
where ($1::text is null or r.workflow = $1)
    and ($2::text is null or r.tenant = $2)
    and ($3::text is null or r.state = $3)
    and ($4::text is null or r.metadata ->> $4 = $5)
    and ($6::timestamptz is null or (r.created_at, r.id) < ($6, $7::uuid))
order by r.created_at desc, r.id desc
limit $8;
