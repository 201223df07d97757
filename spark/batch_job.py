"""Makes all tables from an export: python spark/batch_job.py EXPORT TABLES.

Runs as it is with a local Spark, or on a cluster through spark-submit. `mq9 lake build` does the
same.
"""

from mq9.lake import arguments, batch
from mq9.lake.jobs import Progress


def main() -> None:
    """Reads the command line and does it."""
    asked = arguments.parser(__doc__).parse_args()
    with arguments.session("mq9-batch", asked) as spark:
        targets = arguments.targets_ms(asked)
        tables = batch.run(spark, asked.export, asked.tables, targets, Progress())
        for name, rows in tables.counts().items():
            print(f"{name}: {rows} rows")


if __name__ == "__main__":
    main()
