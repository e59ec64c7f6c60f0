-- Says what was done, in the entry that this transaction began.
--
-- $1 uuid: the id   $2 timestamptz: when   $3 uuid[]: to which runs   $4 text: what else, as JSON
update windlass.operator_log set at = $2, runs = $3, detail = $4::json where id = $1;
