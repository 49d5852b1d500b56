"""Standard output that cannot fail, on real pipes and devices."""

import os
from pathlib import Path

from examples.pipeline_inference.output import Output


def test_a_reader_that_has_gone_is_told_once_and_nothing_fails() -> None:
    reading, writing = os.pipe()
    lost: list[bool] = []
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        output = Output(stream)
        output.on_lost = lambda: lost.append(True)
        output.write("seen\n")
        output.flush()
        assert os.read(reading, 100) == b"seen\n"
        os.close(reading)
        for _ in range(3):
            output.write("unseen\n" * 10_000)
            output.flush()
    assert lost == [True]


def test_a_full_disk_is_as_good_as_no_reader() -> None:
    lost: list[bool] = []
    with Path("/dev/full").open("w", encoding="utf-8") as stream:
        output = Output(stream)
        output.on_lost = lambda: lost.append(True)
        output.write("unseen\n")
        output.flush()
    assert lost == [True]


def test_what_the_encoding_does_not_have_is_replaced() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="ascii") as stream:
        output = Output(stream)
        output.write("a\N{BULLET}b")
        output.flush()
    assert os.read(reading, 100) == b"a?b"
    os.close(reading)
