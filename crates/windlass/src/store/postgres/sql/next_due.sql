-- When the next timer is due.
--
-- $1 timestamptz: from when on to look
select w.due
from windlass.timers w
where w.due >= $1 and w.due < 'infinity'
order by w.due, w.seq
limit 1;
