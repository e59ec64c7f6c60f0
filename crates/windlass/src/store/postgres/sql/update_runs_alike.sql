-- Writes runs that become alike, as those of a batch mostly do.
--
-- $1 uuid[]: the runs, which the caller has locked   $2 text: the state   $3 int: the round
-- $4 int: open tasks   $5 int: failed tasks   $6 timestamptz: the end, null for none
update windlass.runs r
set state = $2,
    round = $3,
    open_tasks = $4,
    failed_tasks = $5,
    ended_at = $6
where r.id = any($1);
