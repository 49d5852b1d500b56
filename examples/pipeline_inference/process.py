"""One node of the pipeline as an operating-system process: files and signals in, JSON lines out.

Owns: how a node's settings reach it, the real transport, the signals that mean stop, and the exit status.
Not here: the node itself (`node`).

The last act is ``os._exit``: the transport library keeps native threads that must not meet an interpreter
that is being torn down.
"""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from examples.pipeline_inference.lines import Failed, say
from examples.pipeline_inference.node import (
    NodeFile,
    OrchestratorConfig,
    StageConfig,
    run_orchestrator,
    run_stage,
)
from swactor import SystemClock
from swactor.cluster.transport.iroh import IrohTransport
from swactor_diag.ports import Ports, production_ports

ALPN = b"swactor-pipeline/1"


def on_stop_signal(call: Callable[[], None]) -> None:
    """Call ``call`` when this process is asked to end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call)


async def run(file: NodeFile) -> int:
    """Be the node; return the exit status."""
    ports = _ports(file)
    match file.config:
        case StageConfig():
            why = await run_stage(ports, file.config, say=say, on_stop_request=on_stop_signal)
            if why is not None:
                say(Failed(why))
            return 0 if why is None else 1
        case OrchestratorConfig():
            answered = await run_orchestrator(ports, file.config, say=say, on_stop_request=on_stop_signal)
            return 0 if answered else 1


def _ports(file: NodeFile) -> Ports:
    transport = IrohTransport(
        file.secret_key, relay_url=file.config.run.relay_url, alpn=ALPN, clock=SystemClock()
    )
    return production_ports(os.environ, pid=os.getpid(), transport=transport)


def main(path: Path) -> None:
    """Run the node that ``path`` describes; never returns."""
    status = 1
    try:
        status = asyncio.run(run(msgspec.msgpack.decode(path.read_bytes(), type=NodeFile)))
    except (OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"cannot read {path}: {error}\n")
    except BaseException:  # noqa: BLE001 - the next line would swallow it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
