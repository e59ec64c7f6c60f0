-- What follows in the transaction sees one moment, and changes nothing.
set transaction isolation level repeatable read, read only;
