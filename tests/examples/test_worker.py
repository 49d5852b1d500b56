"""The worker: what it refuses, what it forgets, and the program around it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from examples.pipeline_inference.faults import Fault, parse_fault
from examples.pipeline_inference.frames import FrameReader, frame
from examples.pipeline_inference.model import catalog
from examples.pipeline_inference.model.config import GREEDY, Cut, ModelName
from examples.pipeline_inference.worker import POSITIONS_AT_ONCE, REQUESTS_MAX, Worker
from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Extend,
    Forget,
    Forward,
    Ready,
    Refused,
    Result,
    Sampled,
    Work,
    decode_result,
    framed,
)

ROOT = Path(__file__).parents[2]
WIDTH = 96


def worker(stage: int, count: int) -> Worker:
    return Worker(catalog.load(ModelName.SMALL, Cut(stage, count)))


def say(to: Worker, work: Work) -> Result:
    (result,) = to.handle(work)
    return result


def rows(count: int) -> bytes:
    return np.zeros((count, WIDTH), "<f4").tobytes()


def test_two_workers_hand_an_activation_on_and_the_last_one_takes_the_token() -> None:
    first, last = worker(0, 2), worker(1, 2)
    computed = say(first, Begin("r", "What is a"))
    assert isinstance(computed, Computed)
    assert len(computed.activation) == 4 * WIDTH * len("What is a")
    forward = Forward("r", computed.position, computed.activation, computed.more, computed.sampling)
    assert say(last, forward) == Sampled("r", ord(" "), b" ", final=False)


def test_a_long_prompt_comes_in_pieces_and_only_the_last_one_ends_in_a_token() -> None:
    prompt = "x" * (2 * POSITIONS_AT_ONCE + 1)
    pieces = list(worker(0, 2).handle(Begin("r", prompt)))
    last = worker(1, 2)
    assert all(isinstance(piece, Computed) for piece in pieces)
    computed = [piece for piece in pieces if isinstance(piece, Computed)]
    assert [(piece.position, piece.more) for piece in computed] == [(0, True), (64, True), (128, False)]
    results = [
        list(last.handle(Forward("r", piece.position, piece.activation, piece.more, GREEDY)))
        for piece in computed
    ]
    assert [len(found) for found in results] == [0, 0, 1]
    whole = list(catalog.generate(catalog.load(ModelName.SMALL, Cut(0, 1)), prompt, tokens_max=1))
    (sampled,) = results[-1]
    assert isinstance(sampled, Sampled)
    assert [sampled.token] == whole


@pytest.mark.parametrize(
    ("stage", "work", "why"),
    [
        (0, Begin("r", ""), "the prompt is empty"),
        (0, Begin("r", "x" * 513), "has 513 tokens, the model takes 512"),
        (0, Extend("unknown", 1), "not known here"),
        (1, Begin("r", "x"), "only the first stage"),
        (1, Forward("r", 3, rows(1), more=False), "not known here"),
        (1, Forward("r", 0, b"odd", more=False), "rows of 96 numbers"),
        (1, Forward("r", 0, b"", more=False), "rows of 96 numbers"),
        (1, Forward("r", 0, rows(513), more=False), "takes 512 positions"),
    ],
)
def test_work_that_makes_no_sense_is_refused_and_the_next_request_is_not_affected(
    stage: int, work: Work, why: str
) -> None:
    refusing = worker(stage, 2)
    refused = say(refusing, work)
    assert isinstance(refused, Refused)
    assert refused.request_id == work.request_id
    assert why in refused.why
    good = Begin("good", "What") if stage == 0 else Forward("good", 0, rows(1), more=False)
    assert isinstance(say(refusing, good), Computed | Sampled)


def test_a_gap_between_activations_is_noticed_instead_of_computed_over() -> None:
    last = worker(1, 2)
    say(last, Forward("r", 0, rows(2), more=False))
    refused = say(last, Forward("r", 3, rows(1), more=False))
    assert isinstance(refused, Refused)
    assert refused.why == "position 2 comes next, not 3"


def test_a_token_that_the_vocabulary_does_not_have_is_refused() -> None:
    first = worker(0, 2)
    say(first, Begin("r", "x"))
    assert isinstance(say(first, Extend("r", 256)), Refused)


def test_one_request_too_many_is_refused_until_another_one_is_forgotten() -> None:
    first = worker(0, 2)
    for number in range(REQUESTS_MAX):
        say(first, Begin(f"r{number}", "x"))
    assert isinstance(say(first, Begin("late", "x")), Refused)
    assert list(first.handle(Forget("r5"))) == []
    assert isinstance(say(first, Begin("late", "x")), Computed)
    assert isinstance(say(first, Extend("r5", 1)), Refused)


def run(*arguments: str, text: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], input=text, capture_output=True, cwd=ROOT, timeout=50, check=False
    )


def results(stream: bytes) -> list[Result]:
    return [decode_result(body) for body in FrameReader().feed(stream)]


PROGRAM = "examples.pipeline_inference.worker_program"


def test_the_program_answers_frames_refuses_what_is_no_work_and_ends_with_its_input() -> None:
    done = run(PROGRAM, "0", "2", text=frame(b"\xc1") + framed(Begin("r", "What is a")))
    *_loading, ready, refused, computed = results(done.stdout)
    assert ready == Ready("small", "first", (0, 1, 2))
    assert isinstance(refused, Refused)
    assert refused.request_id is None
    assert computed == say(worker(0, 2), Begin("r", "What is a"))
    assert done.returncode == 0
    assert done.stderr == b"first stage of 2 has layers 0 to 2, is ready\n"


def test_the_program_ends_when_its_input_is_broken_and_says_so() -> None:
    done = run(PROGRAM, "0", "2", text=b"this is no frame\n")
    assert done.returncode == 1
    assert b"standard input is broken: a frame begins with its length" in done.stderr
    assert b"Traceback" not in done.stderr


def test_by_hand_it_speaks_json_lines() -> None:
    line = b'{"type": "begin", "request_id": "r", "prompt": "What is a"}\n'
    done = run("examples.pipeline_inference", "worker", "0", "1", text=line + b"nonsense\n")
    *_loading, ready, sampled, refused = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert ready == {"type": "ready", "model": "small", "role": "last", "layers": [0, 1, 2, 3, 4, 5]}
    assert sampled["token"] == ord(" ")
    assert refused["type"] == "refused"


@pytest.mark.parametrize(
    ("stage", "count", "why"), [("3", "3", "stage 3 of 3 does not"), ("0", "7", "not 7")]
)
def test_a_stage_that_cannot_be_is_refused_in_one_line(stage: str, count: str, why: str) -> None:
    done = run(PROGRAM, stage, count, text=b"")
    assert done.returncode == 2
    assert why in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("fault", "status"), [("exits", 3), ("silent", 0)])
def test_in_a_drill_the_program_misbehaves_as_told(fault: str, status: int) -> None:
    done = run(PROGRAM, "0", "2", "--fault", fault, text=framed(Begin("r", "x")))
    assert (done.returncode, done.stdout) == (status, b"")


def test_a_switch_for_a_fault_names_a_stage_and_a_fault() -> None:
    assert parse_fault("stage-1=never-spawned", stage_count=3) == (1, Fault.NEVER_SPAWNED)


@pytest.mark.parametrize("text", ["", "stage-1", "stage-1=", "stage-1=bored", "1=silent", "stage-3=silent"])
def test_a_switch_that_means_nothing_is_refused_with_what_would(text: str) -> None:
    with pytest.raises(ValueError, match=r"stages 0 to 2|never-spawned, exits, silent"):
        parse_fault(text, stage_count=3)
