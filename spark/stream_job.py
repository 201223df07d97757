"""Keeps the tables up to date while an export grows: python spark/stream_job.py EXPORT TABLES.

Without --every it ends when it has read what is there; run it again and it goes on where it was.
`mq9 lake stream` does the same.
"""

from pyspark.sql.streaming.query import StreamingQuery

from mq9.lake import arguments, stream
from mq9.lake.jobs import Progress


def main() -> None:
    """Reads the command line and does it."""
    parser = arguments.parser(__doc__)
    parser.add_argument(
        "--checkpoint", help="where the stream keeps its place; TABLES/_checkpoint otherwise"
    )
    parser.add_argument("--every", type=float, metavar="SECONDS", help="look for more so often")
    parser.add_argument("--files", type=int, help="at most so many files in one micro-batch")
    asked = parser.parse_args()
    with arguments.session("mq9-stream", asked) as spark:
        tell = Progress()

        def begin() -> StreamingQuery:
            return stream.start(
                spark,
                asked.export,
                asked.tables,
                asked.checkpoint or f"{asked.tables.rstrip('/')}/_checkpoint",
                every_s=asked.every,
                files_per_batch=asked.files,
                targets_ms=arguments.targets_ms(asked),
                tell=tell,
            )

        stream.finish(begin, tell=tell)


if __name__ == "__main__":
    main()
