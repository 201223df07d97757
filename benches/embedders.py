"""What an embedder costs: loading, memory, cards and queries per second of one core.

Run it on a quiet machine, once per embedder: `python benches/embedders.py default`. Texts are those
of tests/retrieval. Times are of the processor, so other work on the machine disturbs them little.
"""

import json
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import cast

FOLDER = Path(__file__).parents[1] / "tests" / "retrieval"
ROUNDS = 3


def resident_mb() -> int:
    """The memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def read(name: str) -> list[dict[str, object]]:
    """A file of the test set."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def main() -> None:
    """Measure the embedder named on the command line."""
    start_s = perf_counter()
    from mq9.registry.card_text import card_text
    from mq9.registry.embedder import Name, load_embedder

    embedder = load_embedder(cast("Name", sys.argv[1] if len(sys.argv) > 1 else "auto"))
    embedder.embed(["warm"])
    load_s = perf_counter() - start_s
    texts = [card_text(card).meaning for card in read("cards.jsonl")]
    queries = [str(query["semantic"]) for query in read("queries.jsonl") if "semantic" in query]
    card_s = query_s = float("inf")
    for _ in range(ROUNDS):
        start_s = process_time()
        embedder.embed(texts)
        card_s = min(card_s, (process_time() - start_s) / len(texts))
        start_s = process_time()
        for query in queries:
            embedder.embed([query])
        query_s = min(query_s, (process_time() - start_s) / len(queries))
    sys.stdout.write(
        f"{embedder.id}: loads in {load_s:.1f} s, {resident_mb()} MB, "
        f"{card_s * 1000:.1f} ms per card ({card_s * 100_000 / 60:.0f} min for 100,000), "
        f"{query_s * 1000:.1f} ms per query\n"
    )


if __name__ == "__main__":
    main()
