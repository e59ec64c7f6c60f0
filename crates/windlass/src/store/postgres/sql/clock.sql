-- The time, after whatever this transaction waited for.
select clock_timestamp();
