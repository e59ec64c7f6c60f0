-- server.sight: the role sees what the sessions of others do
--
-- Without this right their transactions, and how old they are, are not shown: what follows
-- would look as if there were none.
select
    'notice' as severity,
    format('role %I does not see what the sessions of other roles do', current_user) as problem,
    'transactions of others that are open for long are not found' as cause,
    format('grant pg_read_all_stats to %I', current_user) as remedy
where not pg_has_role(current_user, 'pg_read_all_stats', 'usage')
