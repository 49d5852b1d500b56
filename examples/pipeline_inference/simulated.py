"""The pipeline as the simulator boots it: node functions that take a mapping, an understudy for the worker.

Owns: nothing but the adaption; the node functions are the production ones.

The understudy says what a worker would say, in the same frames, and computes nothing: an activation is zeros,
the answer is a sentence known beforehand. A simulated run is about messages and failures; it needs no
arithmetic, and would otherwise depend on how a machine sums.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from examples.pipeline_inference.frames import FrameReader
from examples.pipeline_inference.model.config import SMALL, Cut, ModelName
from examples.pipeline_inference.node import OrchestratorConfig, StageConfig, run_orchestrator, run_stage
from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Extend,
    Forget,
    Forward,
    Ready,
    Result,
    Sampled,
    Work,
    decode_work,
    framed,
)
from swactor_diag.ports import Ports
from swactor_process import ProcessSpec
from swactor_process.testing import Say, Script

LOAD_S = 2.0
STEP_S = 1.25
"""How long a worker thinks about one activation."""
ANSWER = b" A stage is an actor that owns one worker process.\n"


def _nobody(*_said: object) -> None:
    """Nobody reads what a simulated node prints, and no operator asks it to stop; the scenario kills it."""


async def boot_stage(ports: Ports, config: Mapping[str, object]) -> None:
    """Be a stage until something ends it."""
    settings = msgspec.convert(config, StageConfig)
    await run_stage(ports, settings, say=_nobody, on_stop_request=_nobody)


async def boot_orchestrator(ports: Ports, config: Mapping[str, object]) -> None:
    """Answer the prompts and end."""
    settings = msgspec.convert(config, OrchestratorConfig)
    await run_orchestrator(ports, settings, say=_nobody, on_stop_request=_nobody)


class Understudy:
    """Says what the worker of ``cut`` would say."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._positions: dict[str, int] = {}
        self._said: dict[str, int] = {}

    def ready(self) -> Ready:
        """Return what it says when it has loaded its layers."""
        return Ready(ModelName.SMALL, self._cut.role, tuple(self._cut.layers(SMALL)))

    def handle(self, work: Work) -> Iterator[Result]:
        """Yield the answer to one piece of work."""
        match work:
            case Begin(request_id, prompt):
                yield self._advance(request_id, len(prompt.encode()))
            case Extend(request_id):
                yield self._advance(request_id, 1)
            case Forward(request_id, _, activation):
                yield self._advance(request_id, len(activation) // (4 * SMALL.width))
            case Forget(request_id):
                self._positions.pop(request_id, None)
                self._said.pop(request_id, None)

    def _advance(self, request_id: str, rows: int) -> Result:
        if not self._cut.is_last:
            position = self._positions.get(request_id, 0)
            self._positions[request_id] = position + rows
            return Computed(request_id, position, bytes(4 * SMALL.width * rows), more=False)
        said = self._said.get(request_id, 0)
        self._said[request_id] = said + 1
        token = ANSWER[said % len(ANSWER)]
        return Sampled(request_id, token, bytes([token]), final=token == ANSWER[-1])


def scripted(spec: ProcessSpec) -> Script:
    """Return the understudy as a script, which thinks for a while of virtual time."""
    stage, stage_count = (int(argument) for argument in spec.args[-2:])
    understudy = Understudy(Cut(stage, stage_count))
    return script_of(understudy.ready(), understudy.handle, load_s=LOAD_S, step_s=STEP_S)


def script_of(
    ready: Ready, handle: Callable[[Work], Iterator[Result]], *, load_s: float, step_s: float
) -> Script:
    """Return a worker as a script: it gets lines, and puts frames together from them."""
    reader = FrameReader()

    def on_line(line: bytes) -> Iterator[Say]:
        for body in reader.feed(line + b"\n"):
            for result in handle(decode_work(body)):
                yield Say(framed(result), after_s=step_s)

    return Script(begin=(Say(framed(ready), after_s=load_s),), on_line=on_line)
