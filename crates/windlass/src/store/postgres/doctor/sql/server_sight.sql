-- server.sight: the role can see the sessions of other roles
--
-- Without this right, PostgreSQL hides their transactions, and the checks below find none.
select
    'notice' as severity,
    format('role %I cannot see the sessions of other roles', current_user) as problem,
    'long transactions of other roles are not found' as cause,
    format('grant pg_read_all_stats to %I', current_user) as remedy
where not pg_has_role(current_user, 'pg_read_all_stats', 'usage')
