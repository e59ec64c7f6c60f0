-- Keeps a signal to a run that the caller has locked, if it is new and there is room, and says
-- which.
--
-- $1 uuid: the run   $2 uuid: its id   $3 text: its name   $4 text: its value
-- $5 timestamptz: the time   $6 bigint: how many may wait
with known as (
    select exists (select from windlass.signals x where x.run_id = $1 and x.id = $2) as is_known
),
room as (
    select count(*) < $6 as has_room
    from (
        select x.seq
        from windlass.signals x
        where x.run_id = $1 and not x.is_taken
        limit $6
    ) x
),
sent as (
    insert into windlass.signals (run_id, id, name, value, at)
    select $1, $2, $3, $4::json, $5
    from known k, room r
    where not k.is_known and r.has_room
)
select k.is_known, r.has_room
from known k, room r;
