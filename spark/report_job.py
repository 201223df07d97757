"""Makes a page and pictures from the tables: python spark/report_job.py TABLES FOLDER."""

import argparse
from pathlib import Path

from mq9.spark import session
from mq9_report.figures import figures
from mq9_report.page import write
from mq9_tables.tables import Tables


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", help="folder of the tables: a path, or file:, s3a: or hdfs:")
    parser.add_argument("folder", type=Path, help="folder for report.html and the pictures")
    parser.add_argument("--master", help="of Spark; that of spark-submit or local[*] otherwise")
    asked = parser.parse_args()
    spark = session("mq9-report", master=asked.master)
    for path in write(figures(Tables(spark, asked.tables)), asked.folder):
        print(path)
    spark.stop()


if __name__ == "__main__":
    main()
