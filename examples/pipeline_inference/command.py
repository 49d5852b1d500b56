"""The command line of the example: ``swactor demo ...`` or ``python -m examples.pipeline_inference ...``."""

import sys
from pathlib import Path
from typing import Annotated

import anyio
import typer

from examples.pipeline_inference.model import LAYERS

PROMPT = "What is an actor?"

app = typer.Typer(
    help="A language model cut over several nodes of this machine, with one bundle that tells it all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def run(
    prompts: Annotated[
        list[str] | None, typer.Argument(help="What the model is to continue, one after the other.")
    ] = None,
    stages: Annotated[int, typer.Option(min=1, max=LAYERS, help="Stages to cut the model into.")] = 3,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the answer at most.")] = 120,
    out: Annotated[Path, typer.Option(help="Folder for the run's bundle, summary and logs.")] = Path("runs"),
) -> None:
    """Start relay, collector, orchestrator and stages, answer the prompts, and show what happened.

    Exit status 0: answered. 1: something failed, the summary says what. 130: interrupted.
    """
    from rich.console import Console

    from examples.pipeline_inference.demo import Demo, DemoOptions

    demo = Demo(DemoOptions(tuple(prompts or [PROMPT]), stages, tokens, out), Console())
    raise typer.Exit(anyio.run(demo.run))


@app.command()
def node(file: Annotated[Path, typer.Argument(help="What `run` wrote for this node.")]) -> None:
    """Be one node of a run: the orchestrator or a stage. `run` starts these."""
    from examples.pipeline_inference.process import main

    main(file)


@app.command()
def worker(
    stage: Annotated[int, typer.Argument(min=0, help="Which stage, from 0.")],
    count: Annotated[int, typer.Argument(min=1, max=LAYERS, help="Of how many stages.")],
) -> None:
    """Be the worker of one stage, to talk to by hand: JSON lines in, JSON lines out, ends with its input."""
    from examples.pipeline_inference.worker import serve

    serve(stage, count)


if __name__ == "__main__":
    sys.exit(app())
