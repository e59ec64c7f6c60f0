-- The roles of Windlass. Run by a superuser in the database of Windlass:
--
--     windlass migrate --grants | psql -X -v ON_ERROR_STOP=1 -d <database>
--
-- It may be run again, and is to be run again after a migration. None of the roles is a superuser, and
-- none has a password: give those that log in one, or another way in.
--
--     {owner} owns the schema: `windlass migrate` connects as it.
--     {engine} reads and writes the tables: servers and programs connect as it.
--     {api} sees one tenant at a time: nobody connects as it, the engine takes it on.

begin;

set local lock_timeout = '5s';
set local client_min_messages = warning;

do $roles$
begin
    if not exists (select from pg_roles r where r.rolname = {owner name}) then
        create role {owner} login;
    end if;
    if not exists (select from pg_roles r where r.rolname = {engine name}) then
        create role {engine} login;
    end if;
    if not exists (select from pg_roles r where r.rolname = {api name}) then
        create role {api} nologin;
    end if;
    if exists (
        select from pg_roles r
        where r.rolname in ({owner name}, {engine name}, {api name})
            and (r.rolsuper or r.rolbypassrls or r.rolcreaterole)
    ) then
        raise exception 'a role of Windlass is a superuser, makes roles or passes row level security by';
    end if;
    -- The engine takes the API's role on and does not have its rights otherwise.
    if current_setting('server_version_num')::integer >= 160000 then
        execute 'grant {api} to {engine} with inherit false, set true';
    else
        execute 'grant {api} to {engine}';
    end if;
    -- For the migrations that are to come: the schema is made by the first of them.
    execute format('grant create on database %I to {owner}', current_database());
    if not exists (select from pg_namespace n where n.nspname = 'windlass') then
        raise warning 'there is no schema of Windlass yet: run `windlass migrate` as {owner}, then this again';
    end if;
end
$roles$;

-- Nothing below is done before the schema is there.
do $schema$
declare
    thing record;
    walled text;
    mine constant text := 'tenant = current_setting(''windlass.tenant'', true)';
begin
    if not exists (select from pg_namespace n where n.nspname = 'windlass') then
        return;
    end if;

    -- Owned by the role that migrates.
    alter schema windlass owner to {owner};
    for thing in
        select format('alter %s windlass.%I owner to {owner}',
            case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end,
            c.relname) as done
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'windlass'
        where c.relkind in ('r', 'p', 'v', 'S')
            and c.relowner <> (select r.oid from pg_roles r where r.rolname = {owner name})
            and not exists (
                select from pg_depend d
                where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('i', 'a')
            )
        union all
        select format('alter routine %s owner to {owner}', p.oid::regprocedure)
        from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'windlass'
        where p.proowner <> (select r.oid from pg_roles r where r.rolname = {owner name})
    loop
        execute thing.done;
    end loop;

    -- The engine: all rows, and nothing of their shape.
    grant usage on schema windlass to {engine};
    grant select, insert, update, delete on all tables in schema windlass to {engine};
    revoke insert, update, delete on windlass.migrations from {engine};
    -- What was staged is told by how far its numbers are, which is read.
    grant usage, select on all sequences in schema windlass to {engine};
    grant execute on all functions in schema windlass to {engine};
    alter default privileges for role {owner} in schema windlass
        grant select, insert, update, delete on tables to {engine};
    alter default privileges for role {owner} in schema windlass
        grant usage, select on sequences to {engine};
    alter default privileges for role {owner} in schema windlass
        grant execute on functions to {engine};

    -- The API: nothing, but to read what is named here.
    revoke all on schema windlass from {api};
    revoke all on all tables in schema windlass from {api};
    revoke all on all sequences in schema windlass from {api};
    revoke all on all functions in schema windlass from {api};
    grant usage on schema windlass to {api};
    grant select on windlass.definition_tasks to {api};
    foreach walled in array array[{walled tables}] loop
        execute format('grant select on windlass.%I to {api}', walled);
        execute format('alter table windlass.%I enable row level security', walled);
        execute format('drop policy if exists windlass_engine on windlass.%I', walled);
        execute format('drop policy if exists windlass_api on windlass.%I', walled);
        execute format(
            'create policy windlass_engine on windlass.%I to {engine} using (true) with check (true)',
            walled
        );
        execute format('create policy windlass_api on windlass.%I for select to {api} using (%s)', walled,
            case
                when walled in ('runs', 'dead_letters', 'archived_runs', 'schedules', 'operator_log')
                    then mine
                when walled = 'schedule_fires' then
                    'exists (select from windlass.schedules s where s.id = schedule_id and s.' || mine || ')'
                else 'exists (select from windlass.runs r where r.id = run_id and r.' || mine || ')'
            end
        );
    end loop;

    -- A view reads with the rights of its owner, who sees all rows. Before PostgreSQL 15 that cannot be
    -- changed, and the API's role is not given any.
    if current_setting('server_version_num')::integer >= 150000 then
        foreach walled in array array[{walled views}] loop
            execute format('alter view windlass.%I set (security_invoker = true)', walled);
            execute format('grant select on windlass.%I to {api}', walled);
        end loop;
    end if;
end
$schema$;

commit;
