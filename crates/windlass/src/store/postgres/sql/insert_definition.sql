-- Keeps a definition.
--
-- $1 text: workflow   $2 int: version   $3 int: revision   $4 text: the definition   $5 int: how
-- many tasks are open at the start   $6 timestamptz: the time
insert into windlass.definitions (workflow, version, revision, body, open_tasks, registered_at)
values ($1, $2, $3, $4::text::json, $5, $6)
returning id;
