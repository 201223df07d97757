"""Makes a page and pictures from the tables: python spark/report_job.py TABLES FOLDER."""

import argparse
from pathlib import Path

from mq9.lake.jobs import running
from mq9.lake.report.figures import figures
from mq9.lake.report.page import write
from mq9.lake.tables import Tables


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", help="folder of the tables: a path, or file:, s3a: or hdfs:")
    parser.add_argument("folder", type=Path, help="folder for report.html and the pictures")
    parser.add_argument("--export", default="", help="what the tables were made of, for the title")
    parser.add_argument("--master", help="of Spark; that of spark-submit or local[*] otherwise")
    asked = parser.parse_args()
    with running("mq9-report", master=asked.master, parallelism=8) as spark:
        for path in write(figures(Tables(spark, asked.tables), asked.export), asked.folder):
            print(path)


if __name__ == "__main__":
    main()
