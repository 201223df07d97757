"""Every card has the vector of its own text, not only the first that a reader process was given.

Found by fuzzing the protocol: the process that searches agents died. What it had read of an answer
was not taken away when the caller stopped at the first frame, so each later batch of cards was
given the vectors of the batch before it, or half of them.
"""

import select
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from tests.agents import MEANING_DEADLINE_S

from mq9.registry.embedder import load_embedder
from mq9.registry.reader import Reader

BATCHES = (["rain and umbrellas"], ["bills to be paid"], ["cheap flights", "good hotels"])


@pytest.fixture
def reader() -> Iterator[Reader]:
    found = Reader("light")
    yield found
    found.close()


def test_each_batch_is_answered_with_its_own_vectors(reader: Reader) -> None:
    embedder = load_embedder("light")
    for texts in BATCHES:
        reader.ask({text.encode(): text for text in texts})
        answers: list[tuple[bytes, npt.NDArray[np.float32]]] = []
        while not answers:
            ready, _, _ = select.select([reader.fileno()], [], [], MEANING_DEADLINE_S)
            assert ready
            answers = reader.answers()
        assert [key.decode() for key, _ in answers] == texts
        np.testing.assert_allclose([vector for _, vector in answers], embedder.embed(texts))
