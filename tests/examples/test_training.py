"""The seed gives the weights: the first steps of the training, compared with what they gave when it was run.

All of it takes eight minutes; `examples/pipeline_inference/training/__main__.py` says how to repeat that.
"""

import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
STEPS = 3
LOSSES = (7.338009, 7.216065, 6.976538)
"""The mean surprise of a byte, in nats: 5.5 would be no idea at all, fresh weights are worse than that."""
DIGEST = "962dad5de1565909"
"""Begins that of the weights after these steps."""
NUMPY = "2.4.6"
"""Its wheel has the OpenBLAS with which the digest was recorded."""


def first_steps() -> tuple[list[float], str]:
    """Train in a process of its own, as by hand; return the losses and the digest."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.pipeline_inference.training", "--steps", str(STEPS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    (digest,) = re.findall(r"weights ([0-9a-f]{64}) ", done.stdout)
    return losses, digest


@pytest.fixture(scope="module")
def trained() -> tuple[list[float], str]:
    return first_steps()


@pytest.mark.xdist_group("training")
def test_the_first_steps_from_the_seed_lose_what_they_lost_before(trained: tuple[list[float], str]) -> None:
    losses, _ = trained
    assert losses == pytest.approx(LOSSES, rel=1e-5)


@pytest.mark.xdist_group("training")
def test_training_twice_gives_the_same_bits(trained: tuple[list[float], str]) -> None:
    assert first_steps() == trained


@pytest.mark.xdist_group("training")
@pytest.mark.skipif(
    (np.__version__, platform.machine()) != (NUMPY, "x86_64"),
    reason=f"the digest was recorded with NumPy {NUMPY} on x86_64; another one may sum in another order",
)
def test_the_weights_after_them_are_those_that_were_recorded_bit_by_bit(
    trained: tuple[list[float], str],
) -> None:
    _, digest = trained
    assert digest.startswith(DIGEST)
