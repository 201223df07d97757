"""What `mq9 lake` is given is looked at before Spark starts."""

import pytest

from mq9 import cli

USAGE = 2


@pytest.mark.parametrize(
    "words",
    [
        "build export --parallelism 0",
        "build export --critical-ms -5",
        "build export --memory much",
        "stream export --files 0",
        "stream export --every -1",
        "stream export --every nan",
        "stream export --every soon",
        "query export sql --limit 0",
        "query export sql --limit few",
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["lake", *words.split()]) == USAGE
    option = words.split()[-2]
    assert f"argument {option}: must be a " in capsys.readouterr().err
