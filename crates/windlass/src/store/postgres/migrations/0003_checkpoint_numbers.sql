-- Checkpoints of one attempt have numbers, so that one that comes late does not take the place of
-- a newer one.
--
-- Programs of the version before write the fence and the value and leave both columns alone. So a
-- number counts only for the fence that it was written under: what such a program has written
-- since, under a newer fence, has none.

alter table windlass.checkpoints
    -- Counted from 1 by the attempt that left it; 0 if it does not count.
    add column number integer not null default 0,
    -- The fence that the number was written under; 0 if none was.
    add column number_fence bigint not null default 0;
