-- How many children a call has, and how many of them are not known to have ended.
--
-- $1 uuid, $2 int: the task   $3 int: the call
select
    (
        select count(1)
        from windlass.children c
        where c.run_id = $1 and c.idx = $2 and c.call = $3
    ) as started,
    (
        select count(1)
        from windlass.children c
        where c.run_id = $1 and c.idx = $2 and c.call = $3 and c.has_ended is null
    ) as open;
