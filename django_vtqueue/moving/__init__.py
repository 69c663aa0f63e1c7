"""Moving what a queue has stored to another database, while workers and publishers of both go on.

Two databases have no common transaction. So rows travel in batches, one at a time, and each batch makes three commits:

1. In the source the rows are deleted, and one row, the *outbox*, has them all as JSON, with the number of the batch.
2. In the target the rows are inserted, and one row, the *inbox*, gets that number; if it has it already, the batch has
   arrived before, and nothing is inserted.
3. In the source the outbox is emptied. Rows that the target has refused go back into their tables.

Whatever is killed in between, the next run goes on with the batch in the outbox, so each row arrives once, and no
worker can take it in both databases. Each commit is guarded by the number: a second run at the same time does a step of
the first one, or none.
"""
