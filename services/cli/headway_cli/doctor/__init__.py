"""`headway doctor`: what is wrong with a set-up, and what to do about it.

It looks at whatever is configured: the console (`asked`), PostgreSQL (`tables`), NATS (`streams`)
and the machine itself (`machine`). Each of them first gathers facts and then judges them, by pure
functions from facts to findings. What cannot be reached is one finding, and the others are looked
at all the same.
"""
