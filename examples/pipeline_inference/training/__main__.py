"""Train the small model: ``python -m examples.pipeline_inference.training``, 8 minutes of one core.

The shipped weights come again from the seed, byte for byte: on any x86-64 processor with AVX2, with NumPy
2.4.6 and the OpenBLAS of its wheel, with one thread and the one kernel that all these processors have.
Another one sums in another order: after a few steps the last bits differ, after all of them the weights
do, and are as good. ``--steps 3`` shows the first ones and writes nothing.
"""

import argparse
import os
from pathlib import Path

# Before NumPy is imported: the order in which it sums is part of what comes out.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")  # not the newest one that this processor has

from examples.pipeline_inference.model.small import WEIGHTS
from examples.pipeline_inference.training.train import train, try_out


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Train the small model from its seed.")
    parser.add_argument("path", type=Path, nargs="?", default=WEIGHTS, help="file for the weights")
    parser.add_argument("--steps", type=int, help="only the first steps: print their losses, write nothing")
    arguments = parser.parse_args()
    if arguments.steps is None:
        train(arguments.path)
    else:
        try_out(arguments.steps)


if __name__ == "__main__":
    main()
