-- The newest migration that was applied, or 0. Takes no locks that matter.
select coalesce(max(m.version), 0) as version from windlass.migrations m;
