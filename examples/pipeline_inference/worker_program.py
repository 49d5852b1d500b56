"""The worker as a program: loads its slice, takes work from standard input, and ends when that does.

Owns: arguments, pipes, progress while loading, the exit status. Not here: the work (`worker`).

Run by hand, ``python -m examples.pipeline_inference worker 0 2``, it reads and writes JSON lines instead of
frames; type ``{"type": "begin", "request_id": "r", "prompt": "What is a relay?"}``.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from examples.pipeline_inference.faults import Fault
from examples.pipeline_inference.frames import FrameError, FrameReader
from examples.pipeline_inference.model.config import Cut, ModelName
from examples.pipeline_inference.worker_protocol import (
    Loading,
    Ready,
    Refused,
    Result,
    Work,
    decode_work,
    framed,
)

READ_BYTES = 1 << 16


def serve(model: ModelName, cut: Cut, *, source: BinaryIO, sink: BinaryIO, as_json: bool = False) -> int:
    """Load the slice of ``cut``, then work until ``source`` ends; return the exit status."""
    # NumPy reads this when it is imported; two threads a process lose as soon as two stages work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from examples.pipeline_inference.model.catalog import load
    from examples.pipeline_inference.model.slices import ModelMissingError
    from examples.pipeline_inference.worker import Worker

    encode: Callable[[Result], bytes] = _json_line if as_json else framed

    def write(result: Result) -> None:
        sink.write(encode(result))
        sink.flush()

    def on_layer(loaded: int, layers: int) -> None:
        write(Loading(loaded, layers))

    try:
        slice_ = load(model, cut, on_layer)
    except ModelMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    numbers = slice_.layers.numbers
    write(Ready(model, cut.role, numbers))
    which = f"layer {numbers[0]}" if len(numbers) == 1 else f"layers {numbers[0]} to {numbers[-1]}"
    sys.stderr.write(f"{cut.role} stage of {cut.count} has {which}, is ready\n")
    worker = Worker(slice_)
    try:
        for work in _json_work(source) if as_json else _framed_work(source):
            for result in (work,) if isinstance(work, Refused) else worker.handle(work):
                write(result)
    except FrameError as error:
        sys.stderr.write(f"standard input is broken: {error}\n")
        return 1
    return 0


def _framed_work(source: BinaryIO) -> Iterator[Work | Refused]:
    reader = FrameReader()
    while data := os.read(source.fileno(), READ_BYTES):
        for body in reader.feed(data):
            yield _understood(decode_work, body)


def _json_work(source: BinaryIO) -> Iterator[Work | Refused]:
    decode = msgspec.json.Decoder[Work](Work).decode
    for line in source:
        yield _understood(decode, line)


def _understood(decode: Callable[[bytes], Work], body: bytes) -> Work | Refused:
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        return Refused(None, f"no work: {error}")


def _json_line(result: Result) -> bytes:
    return msgspec.json.encode(result) + b"\n"


def misbehave(fault: Fault, source: BinaryIO) -> int:
    """Do what the drill asks for, instead of the work; return the exit status."""
    if fault is Fault.EXITS:
        sys.stderr.write("drill: this worker ends at once\n")
        return 3
    while os.read(source.fileno(), READ_BYTES):
        pass  # takes whatever comes and says nothing
    return 0


def main() -> int:
    """Be the worker that the command line describes."""
    parser = argparse.ArgumentParser(description="The worker of one stage.")
    parser.add_argument("stage", type=int, help="from 0")
    parser.add_argument("count", type=int, help="stages in all")
    parser.add_argument("--model", type=ModelName, choices=list(ModelName), default=ModelName.SMALL)
    parser.add_argument("--fault", type=Fault, choices=[Fault.EXITS, Fault.SILENT])
    arguments = parser.parse_args()
    try:
        cut = Cut(arguments.stage, arguments.count)
    except ValueError as error:
        parser.error(str(error))
    source = sys.stdin.buffer
    if arguments.fault is not None:
        return misbehave(arguments.fault, source)
    return serve(arguments.model, cut, source=source, sink=sys.stdout.buffer)


if __name__ == "__main__":
    sys.exit(main())
