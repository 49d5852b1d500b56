"""The pipeline as the simulator boots it: node functions that take a mapping, and the worker as a script.

Owns: nothing but the adaption; the node functions and the worker are the production ones.
"""

from collections.abc import Callable, Mapping

import msgspec

from examples.pipeline_inference.node import OrchestratorConfig, StageConfig, run_orchestrator, run_stage
from examples.pipeline_inference.worker import Worker
from swactor_diag.ports import Ports
from swactor_process import ProcessSpec
from swactor_process.testing import Say, Script

LOAD_S = 2.0
STEP_S = 1.25
"""How long a worker thinks about one position."""


def _nobody_asks(_stop: Callable[[], None]) -> None:
    """No operator asks a simulated node to stop; the scenario kills it."""


async def boot_stage(ports: Ports, config: Mapping[str, object]) -> None:
    """Be a stage until something ends it."""
    await run_stage(ports, msgspec.convert(config, StageConfig), on_stop_request=_nobody_asks)


async def boot_orchestrator(ports: Ports, config: Mapping[str, object]) -> None:
    """Answer the prompts and end."""
    settings = msgspec.convert(config, OrchestratorConfig)
    await run_orchestrator(ports, settings, say=lambda _spoken: None, on_stop_request=_nobody_asks)


def scripted(spec: ProcessSpec) -> Script:
    """Return the worker program as a script: the same answers, after a while of virtual thinking."""
    stage, stage_count = (int(argument) for argument in spec.args[-2:])
    worker = Worker(stage, stage_count)
    return Script(
        begin=(Say(worker.ready(), after_s=LOAD_S),),
        on_line=lambda line: [Say(result, after_s=STEP_S) for result in worker.handle(line)],
    )
