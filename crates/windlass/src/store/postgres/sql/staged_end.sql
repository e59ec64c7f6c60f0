-- The newest number that a staged run was given, whether it is committed or not.
select s.last_value from windlass.staged_seq_seq s;
