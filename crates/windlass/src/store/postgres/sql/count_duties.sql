-- How many duties of programs there are.
select count(*) from windlass.duties;
