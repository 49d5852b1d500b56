"""The command line of the example: ``swactor demo ...`` or ``python -m examples.pipeline_inference ...``."""

import sys
from pathlib import Path
from typing import Annotated

import anyio
import typer

from examples.pipeline_inference.faults import parse_fault
from examples.pipeline_inference.model.config import STAGES_MAX, Cut, ModelName, Sampling
from swactor_diag.readable import readable

PROMPT = "What is an actor?"

app = typer.Typer(
    help=(
        "A language model cut over several nodes of this machine, with one bundle that tells it all.\n\n"
        "An orchestrator takes prompts and sends them round a ring of stages. Each stage is a node: a "
        "process with an actor that owns one more process, the worker, which computes some of the model's "
        "layers.\n\n"
        "Begin with `run`. Then make it fail and read the summary: `run --fault stage-1=silent`, or kill a "
        "worker while it answers. `worker` is one worker to talk to by hand. "
        "examples/pipeline_inference/README.md goes through all of it."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def run(  # noqa: PLR0917 - its parameters are the arguments and options of the command line
    prompts: Annotated[
        list[str] | None, typer.Argument(help="What the model is to continue, one after the other.")
    ] = None,
    stages: Annotated[int, typer.Option(min=2, max=STAGES_MAX, help="Stages to cut the model into.")] = 3,
    model: Annotated[
        ModelName, typer.Option(help="`small` is shipped; `gemma3-270m` needs swactor\\[gemma].")
    ] = ModelName.SMALL,
    tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tokens of an answer at most.")] = 120,
    times: Annotated[
        int, typer.Option(min=1, max=1_000, help="Ask each prompt so often: time enough to break something.")
    ] = 1,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Prompts to answer at the same time.")] = 1,
    temperature: Annotated[
        float, typer.Option(min=0, max=10, help="0 takes the best token, more lets others have a chance.")
    ] = 0.0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The same seed takes the same chances.")
    ] = 0,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds for an answer, once its turn has come.")
    ] = 120.0,
    fault: Annotated[
        str | None,
        typer.Option(help="Drill: `stage-N=never-spawned`, `stage-N=exits` or `stage-N=silent`."),
    ] = None,
    by_hand: Annotated[
        int | None,
        typer.Option(min=0, help="Do not start this stage: show how to, in another terminal (`node`)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run's bundle, summary and logs.")] = Path("runs"),
) -> None:
    """Start relay, collector, orchestrator and stages, answer the prompts, and show what happened.

    Exit status 0: answered, and no process was lost. 1: something failed, the summary says what.
    130: interrupted.
    """
    from examples.pipeline_inference.demo import Demo, DemoOptions  # late: slow to import
    from examples.pipeline_inference.output import Output

    try:
        drill = None if fault is None else parse_fault(fault, stage_count=stages)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--fault") from error
    for prompt in prompts or ():
        if readable(prompt) != prompt:
            raise typer.BadParameter(f"{prompt!a} is no valid UTF-8", param_hint="PROMPTS")
    if by_hand is not None and by_hand >= stages:
        raise typer.BadParameter(f"there are stages 0 to {stages - 1}", param_hint="--by-hand")
    options = DemoOptions(
        prompts=tuple(prompts or [PROMPT]) * times,
        stage_count=stages,
        tokens_max=tokens,
        out=out,
        model=model,
        parallel=parallel,
        timeout_s=timeout,
        sampling=Sampling(temperature=temperature, seed=seed),
        fault=drill,
        by_hand=by_hand,
    )
    try:
        demo = Demo(options, Output(sys.stdout))
    except OSError as error:
        raise typer.BadParameter(f"cannot write to {out}: {error.strerror}", param_hint="--out") from error
    raise typer.Exit(anyio.run(demo.run))


@app.command()
def node(file: Annotated[Path, typer.Argument(help="What `run` wrote for this node.")]) -> None:
    """Be one node of a run: the orchestrator or a stage.

    `run` starts these, and gives each a file with its settings and
    secrets. To start a stage by hand, for example under a debugger, say
    `run --by-hand 1`: it shows the command. What the node has to say comes
    as JSON lines; Ctrl-C ends it in order, its worker first.
    """
    from examples.pipeline_inference.process import main

    main(file)


@app.command()
def worker(
    stage: Annotated[int, typer.Argument(min=0, help="Which stage, from 0.")],
    count: Annotated[int, typer.Argument(min=1, max=STAGES_MAX, help="Of how many stages.")],
    model: Annotated[ModelName, typer.Option(help="Which model.")] = ModelName.SMALL,
) -> None:
    """Be the worker of one stage, to talk to by hand: JSON lines in, JSON lines out.

    The stages say the same things in binary frames. Stage 0 of 1 has the
    whole model; type, for example:

    {"type": "begin", "request_id": "r", "prompt": "What is a relay?"}

    It answers with a token. Say that this one is taken, and the next one
    comes; Ctrl-D ends it.

    {"type": "extend", "request_id": "r", "token": 32}
    """
    from examples.pipeline_inference.worker_program import serve

    try:
        cut = Cut(stage, count)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(serve(model, cut, source=sys.stdin.buffer, sink=sys.stdout.buffer, as_json=True))


if __name__ == "__main__":
    sys.exit(app())
