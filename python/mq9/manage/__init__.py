"""`mq9 manage`: REST, metrics and the page, in a process of its own.

Speaks NATS to the broker as an operator: it can hang, end or run elsewhere, and no message notices.
"""
