-- How many routes there are.
select count(*) from windlass.routes;
