-- When the next timer is due.
select w.due from windlass.timers w order by w.due, w.seq limit 1;
