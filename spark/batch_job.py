"""Makes all tables from an export: python spark/batch_job.py EXPORT TABLES.

Runs as it is with a local Spark, or on a cluster through spark-submit.
"""

import arguments
from mq9_tables import batch
from mq9_tables.tables import FOR_READERS


def main() -> None:
    """Reads the command line and does it."""
    parser = arguments.parser(__doc__)
    asked = parser.parse_args()
    spark = arguments.session("mq9-batch", asked)
    tables = batch.run(spark, asked.export, asked.tables, arguments.targets_ms(asked))
    for name in FOR_READERS:
        rows = tables.read(name)
        print(f"{name}: {0 if rows is None else rows.count()} rows")
    spark.stop()


if __name__ == "__main__":
    main()
