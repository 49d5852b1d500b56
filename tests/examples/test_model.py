"""The model: every cut of its layers must give the same answer, and the worker must survive bad lines."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from examples.pipeline_inference.model import LAYERS, answer, layers_of
from examples.pipeline_inference.worker import REQUESTS_MAX, Worker
from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Forward,
    Refused,
    Result,
    Sampled,
    Work,
)

ROOT = Path(__file__).parents[2]


def say(worker: Worker, work: Work) -> Result:
    (line,) = worker.handle(msgspec.json.encode(work))
    result: Result = msgspec.json.decode(line, type=Result)
    return result


@pytest.mark.parametrize("prompt", ["What is an actor?", "Who killed the worker", "zzz \N{SNOWMAN}", ""])
@pytest.mark.parametrize("stage_count", [2, 3, 4, 6, LAYERS])
def test_every_cut_gives_the_answer_of_the_whole(prompt: str, stage_count: int) -> None:
    assert answer(prompt, tokens_max=60, stage_count=stage_count) == answer(prompt, tokens_max=60)


def test_the_answer_to_a_known_question_is_legible() -> None:
    text = answer("What is a mailbox?", tokens_max=200)
    assert text == " A mailbox is a bounded queue: what does not fit is refused, and the sender is told."


@pytest.mark.parametrize("stage_count", range(1, LAYERS + 1))
def test_each_layer_is_in_exactly_one_stage(stage_count: int) -> None:
    layers = [layer for stage in range(stage_count) for layer in layers_of(stage, stage_count)]
    assert layers == list(range(1, LAYERS + 1))


@pytest.mark.parametrize(("stage", "stage_count"), [(0, 0), (0, LAYERS + 1), (3, 3), (-1, 2)])
def test_a_cut_that_cannot_be_is_refused(stage: int, stage_count: int) -> None:
    with pytest.raises(ValueError, match="stage"):
        layers_of(stage, stage_count)


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"not json", b'{"op":"dance"}', b'{"op":"extend","request_id":"unknown","token":1}']
)
def test_a_line_that_makes_no_sense_is_refused_and_the_next_one_works(line: bytes) -> None:
    worker = Worker(0, 2)
    (refusal,) = worker.handle(line)
    assert isinstance(msgspec.json.decode(refusal, type=Result), Refused)
    assert isinstance(say(worker, Begin("r", "What")), Computed)


def test_a_first_stage_forgets_the_oldest_request_beyond_its_limit() -> None:
    worker = Worker(0, 1)
    for number in range(REQUESTS_MAX + 1):
        say(worker, Begin(f"r{number}", "x"))
    assert isinstance(say(worker, Begin("r0", "x")), Sampled)
    assert isinstance(
        msgspec.json.decode(*worker.handle(b'{"op":"extend","request_id":"r1","token":1}'), type=Result),
        Refused,
    )


def test_the_program_answers_lines_and_ends_with_its_input() -> None:
    first = msgspec.json.encode(Begin("r", "What is a"))
    done = subprocess.run(
        [sys.executable, "-m", "examples.pipeline_inference.worker", "0", "2"],
        input=first + b"\n",
        capture_output=True,
        cwd=ROOT,
        timeout=30,
        check=True,
    )
    ready, hidden = done.stdout.splitlines()
    assert msgspec.json.decode(ready)["event"] == "worker_ready"
    computed = msgspec.json.decode(hidden, type=Computed)
    last = say(Worker(1, 2), Forward("r", computed.hidden))
    assert isinstance(last, Sampled)
    assert last.text == " "
    assert done.stderr == b"worker of stage 0/2 is ready\n"
