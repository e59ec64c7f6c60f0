-- What became of the nominal times of a schedule, the newest first.
--
-- $1 text: the tenant   $2 text: the name   $3 bigint: how many
select f.nominal_at, f.at, f.by, f.result, f.run_id, f.first_at, f.count, f.reason
from windlass.schedules s
join windlass.schedule_fires f on f.schedule_id = s.id
where s.tenant = $1 and s.name = $2
order by f.seq desc
limit $3;
