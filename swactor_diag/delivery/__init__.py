"""The way of records from a node to its collector: batches, a bounded spool, a sink, and who drives them."""
