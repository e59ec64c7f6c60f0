-- How many schedules there are.
select count(*) from windlass.schedules s;
