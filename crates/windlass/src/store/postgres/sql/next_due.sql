-- When the next timer is due, or the next deadline passes.
--
-- $1 timestamptz: from when on to look for timers
select least(
    (
        select w.due
        from windlass.timers w
        where w.due >= $1 and w.due < 'infinity'
        order by w.due, w.seq
        limit 1
    ),
    (select d.due from windlass.deadlines d order by d.due limit 1)
);
