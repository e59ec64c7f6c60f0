-- Takes back runs that were just made with keys of runs that are gone and whose keys are kept. A
-- run is deleted with its key kept in one transaction, for which whoever makes another run of that
-- key waits: so it is looked for behind that.
--
-- It deletes by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[]: the runs, of which others may have made some with other keys   $2 text[], $3 text[], $4 text[]: their tenants, workflows and keys
-- $5 timestamptz: the time
delete from windlass.runs
where ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) as n (id, tenant, workflow, key)
    cross join lateral (
        select x.expires_at
        from windlass.kept_keys x
        where x.tenant = n.tenant and x.workflow = n.workflow and x.key = n.key
        offset 0
    ) k
    cross join lateral (
        select r.ctid as place, r.tenant, r.workflow, r.key
        from windlass.runs r
        where r.id = n.id
        offset 0
    ) p
    where k.expires_at > $5 and p.tenant = n.tenant and p.workflow = n.workflow and p.key = n.key
))
returning id;
