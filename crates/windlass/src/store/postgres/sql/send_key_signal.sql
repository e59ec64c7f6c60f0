-- Keeps a signal to a key, if it is new and there is room, and says which. Those who wait for it
-- and were not told of another are told: a note is left for the run of each.
--
-- Waiters are locked in the order in which those lock them who delete them. One that is being
-- deleted is waited for: whoever deletes it needs no mailbox any more, and its function looks
-- itself when it goes on. Nobody else changes one while the mailbox is locked, so that it stays in
-- its place.
--
-- $1 text, $2 text: tenant and key, which the caller has locked   $3 text: its name
-- $4 uuid: its id   $5 text: its value   $6 timestamptz: the time
-- $7 timestamptz: until when it is kept   $8 bigint: how many may wait
with known as (
    select exists (
        select from windlass.key_signals x where x.tenant = $1 and x.key = $2 and x.id = $4
    ) as is_known
),
room as (
    select count(*) < $8 as has_room
    from (
        select x.seq
        from windlass.key_signals x
        where x.tenant = $1 and x.key = $2 and x.name = $3 and not x.is_taken
            and (x.expires_at > $6) is true
        limit $8
    ) x
),
sent as (
    insert into windlass.key_signals (tenant, key, name, id, value, at, expires_at)
    select $1, $2, $3, $4, $5::json, $6, $7
    from known k, room r
    where not k.is_known and r.has_room
    returning id
),
waiting as materialized (
    select w.ctid as place
    from windlass.key_waiters w
    where w.tenant = $1 and w.key = $2 and w.name = $3 and w.is_told is null
        and exists (select from sent)
    order by uuid_send(w.run_id), w.idx, w.call
    for update
),
told as (
    update windlass.key_waiters w
    set is_told = true
    where w.ctid = any(array(select x.place from waiting x))
    returning w.run_id
),
noted as (
    insert into windlass.staged (run_id, purpose)
    select distinct t.run_id, 'signalled'
    from told t
    returning run_id
)
select k.is_known, r.has_room, exists (select from noted) as has_notes
from known k, room r;
