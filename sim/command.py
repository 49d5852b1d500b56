"""``swactor sim``, also ``python -m sim``: run a scenario and say what came out.

Owns: arguments, what is printed and written. Not here: the run (`sim.world`), the summary
(`swactor_diag.postproc`).
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sim.errors import ScenarioError, SimulationError
from swactor_diag.cli.console import CommandError, Exit, put, say, write_file

LOG_LINES_MAX = 10_000
"""Of what the nodes logged, the last ones are kept."""

app = typer.Typer(
    help="Run a scenario in virtual time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def sim() -> None:
    """Run a scenario in virtual time."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A scenario: <name>.toml.")],
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Equal seeds give equal bytes.")] = 1,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the bundle; else runs/<scenario>-<seed>.")
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Also write what the bundle tells.")] = False,
) -> None:
    """Run a scenario to its end, write its bundle and print its figures.

    The same scenario and seed give the same bundle, byte for byte. A node
    that fails is a finding, not an error: the run goes on, and the bundle
    says what the node died of. Try sim/scenarios/three_stages.toml.
    """
    from sim import scenario, world  # late: slow to import
    from sim.node import NodeState

    started_s = time.perf_counter()
    try:
        loaded = scenario.load(file)
        folder = out or Path("runs") / f"{loaded.name}-{seed}"
        with _log_kept_in(folder / "nodes.log"):
            bundle, virtual_ns = world.simulate(loaded, seed=seed, file=str(file))
    except ScenarioError as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc
    except SimulationError as exc:
        raise CommandError(str(exc)) from exc
    say(f"seed      {seed}")
    say(f"virtual   {virtual_ns / 1e9:g} s")
    say(f"cpu       {time.process_time():.2f} s in this process so far")
    say(f"wall      {time.perf_counter() - started_s:.2f} s for the run")
    for node in bundle.facts.nodes:
        if node.state == NodeState.FAILED:
            say(f"failed    {node.name}: {node.failure}")
    _write(folder / "bundle.tar.gz", bundle.archive)
    if summary:
        from swactor_diag.postproc import load  # late too
        from swactor_diag.postproc import summary as page

        _write(folder / "summary.md", page.render(load.load_run(bundle.archive)).encode())
    put(f"sha256    {bundle.sha256} of the tar")


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _log_kept_in(target: Path) -> Iterator[None]:
    """Keep what simulated nodes log, however the run ends: a real one's goes to its own standard error."""
    keeper = _Keeper()
    logging.getLogger().addHandler(keeper)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(keeper)
        if keeper.lines or target.exists():  # an earlier run's is not this one's
            text = "".join(f"{line}\n" for line in keeper.lines)
            _write(target, text.encode(errors="backslashreplace"))


def _write(target: Path, data: bytes) -> None:
    write_file(target, data)
    say(f"wrote     {target}")
