-- G15.runs: a run that a schedule started is of its tenant and says which nominal time it is for
--
-- The run of a line may be gone if runs are not kept for ever; one that is there and is another's was
-- not started by the schedule. Where nothing was ever deleted, a run that is gone was never there.
select
    case
        when r.id is null and not exists (select from windlass.retention)
            and not (select w.had_retention from windlass.settings w)
            and not exists (select from windlass.archived_runs a where a.id = f.run_id)
        then format('run %s of schedule %s is not there', f.run_id, s.name)
        when r.tenant <> s.tenant then
            format('run %s of schedule %s is of tenant %s', f.run_id, s.name, r.tenant)
        when r.metadata ->> 'windlass.schedule' is distinct from s.name and r.id is not null then
            format('run %s is not of schedule %s', f.run_id, s.name)
        when (r.metadata ->> 'windlass.nominal')::timestamptz <> f.nominal_at then
            format(
                'run %s of schedule %s is for %s, not for %s', f.run_id, s.name,
                r.metadata ->> 'windlass.nominal', f.nominal_at
            )
    end as problem
from windlass.schedule_fires f
join windlass.schedules s on s.id = f.schedule_id
left join windlass.runs r on r.id = f.run_id
where f.result = 'started'
