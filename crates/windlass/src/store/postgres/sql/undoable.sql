-- Which of these runs have steps that can be undone, whether one of their tasks failed in a way
-- that keeps them, how long their workers may not have heard of the end, and their traces.
--
-- $1 uuid[]: the runs, which have ended   $2 uuid[]: the workers that were at work
select k.run_id,
    exists (
        select
        from windlass.task_rows t
        where t.run_id = k.run_id and t.state = 'failed'
            and (
                t.failure ->> 'code' = 'divergence'
                or t.failure ->> 'code' = 'payload' and (t.failure ->> 'is_retryable')::boolean
            )
    ) as keeps_steps,
    coalesce((
        select (extract(epoch from max(w.lease)) * 1000000)::bigint
        from windlass.workers w
        where w.id = any($2)
    ), 0) as delay_micros,
    r.metadata ->> 'traceparent' as traceparent, r.metadata ->> 'tracestate' as tracestate
from unnest($1::uuid[]) as k (run_id)
left join windlass.runs r on r.id = k.run_id
where exists (
    select
    from windlass.steps s
    where s.run_id = k.run_id and s.kind = 'undoable' and s.number is not null
        and s.failure is null
);
