"""The two main tables of an export by DuckDB: the life of each message, mailboxes by the hour.

    python benches/lake_duckdb.py EXPORT OUT

A yardstick for the batch job. It does less: no senders or costs, no mailboxes that end as a whole,
no ids that come again, and two tables of twelve.
"""

import sys
from pathlib import Path

import duckdb

LIVES = """
copy (
    with of_message as (
        select mailbox, msg_id, "group",
            min(time) filter (kind in ('deliver', 'redeliver')) as first_delivered,
            max(time) filter (kind in ('deliver', 'redeliver')) as last_delivered,
            count(*) filter (kind in ('deliver', 'redeliver')) as deliveries,
            count(*) filter (kind = 'nak') as returns,
            min(time) filter (kind = 'ack') as acked,
            min(time) filter (kind = 'dead_letter') as dead,
            min(time) filter (kind in ('expire', 'delete')) as gone
        from read_parquet('{export}/events/**/*.parquet')
        where msg_id is not null and kind <> 'send'
        group by mailbox, msg_id, "group"
    )
    select m.mailbox, m.msg_id, e."group", m.level, m.priority, m.size, m.sent, m.visible,
        e.first_delivered, e.last_delivered, e.deliveries, e.returns, e.acked,
        coalesce(e.acked, e.dead, e.gone) as ended,
        epoch_ms(e.first_delivered) - epoch_ms(m.visible) as waiting_ms,
        epoch_ms(e.acked) - epoch_ms(e.last_delivered) as processing_ms
    from read_parquet('{export}/messages/**/*.parquet') m
    left join of_message e using (mailbox, msg_id)
) to '{out}/lives.parquet' (format parquet, compression zstd)
"""

HOURLY = """
copy (
    select mailbox, date_trunc('hour', sent) as at, count(*) as sent, sum(size) as bytes,
        count(*) filter (priority = 'critical') as critical,
        count(*) filter (priority = 'urgent') as urgent,
        sum(greatest(deliveries - 1, 0)) as redelivered, count(acked) as acked,
        quantile_cont(waiting_ms, [0.5, 0.95, 0.99]) as waiting,
        quantile_cont(processing_ms, [0.5, 0.95, 0.99]) as processing
    from read_parquet('{out}/lives.parquet')
    group by mailbox, date_trunc('hour', sent)
) to '{out}/hourly.parquet' (format parquet, compression zstd)
"""


def main() -> None:
    """Makes both tables."""
    export, out = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    database = duckdb.connect()
    for query in (LIVES, HOURLY):
        database.execute(query.format(export=export, out=out))


if __name__ == "__main__":
    main()
