"""Rules that the source text itself must keep: who may import what, and what only a seam file may touch.

Layers between packages are checked by import-linter (``make layers``); here is what it cannot express.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("swactor", "swactor_process", "swactor_diag", "sim", "examples")

BANNED_MODULES = {
    "asyncio",
    "multiprocessing",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
"""Modules that reach the machine: clocks, randomness, sockets, threads, processes, the event loop."""
BANNED_CALLS = {"datetime.now", "datetime.utcnow", "os.urandom", "os.getpid", "os.fork", "uuid.uuid4"}

SEAMS: dict[str, set[str]] = {
    # the runtime's ports
    "swactor/_loop.py": {"asyncio"},
    "swactor/_trio_loop.py": {"signal"},
    "swactor/_ports.py": {"os.urandom", "time"},
    "swactor/_watchdog.py": {"threading"},
    # child processes
    "swactor_process/_guardian_program.py": {"select", "signal", "subprocess", "time"},
    "swactor_process/_real_child.py": {"os.getpid", "signal", "threading"},
    "swactor_process/_signals.py": {"signal"},
    "swactor_process/_start.py": {"subprocess"},
    "swactor_process/_start_times.py": {"time"},
    "swactor_process/_watches.py": {"select"},
    "swactor_process/host.py": {"socket"},
    "swactor_process/guardian.py": {"os.getpid", "signal", "subprocess"},
    "swactor_process/portable.py": {"os.getpid", "threading"},
    # networks
    "swactor/cluster/transport/_iroh_connection.py": {"asyncio"},
    "swactor/cluster/transport/_iroh_dial.py": {"asyncio"},
    "swactor/cluster/transport/_iroh_watch.py": {"asyncio"},
    "swactor/cluster/transport/iroh.py": {"asyncio"},
    "swactor/relay/_carrier.py": {"asyncio"},
    "swactor/relay/_door.py": {"asyncio"},
    "swactor/relay/_tap.py": {"asyncio", "socket"},
    "swactor/relay/server.py": {"asyncio"},
    "swactor/relay/testing.py": {"asyncio", "socket"},
    "swactor_diag/collector/bodies.py": {"asyncio"},
    "swactor_diag/collector/canonical.py": {"threading"},
    "swactor_diag/collector/commits.py": {"asyncio"},
    "swactor_diag/collector/connections.py": {"asyncio", "socket"},
    "swactor_diag/collector/downloads.py": {"asyncio"},
    "swactor_diag/collector/live.py": {"asyncio"},
    "swactor_diag/collector/local_storage.py": {"threading"},
    "swactor_diag/collector/object_storage.py": {"threading"},
    "swactor_diag/collector/parts.py": {"asyncio"},
    "swactor_diag/collector/routes.py": {"asyncio"},
    "swactor_diag/collector/server.py": {"asyncio"},
    "swactor_diag/collector/staging.py": {"threading"},
    "swactor_diag/introspect/links.py": {"socket"},
    "swactor_diag/introspect/sockets.py": {"socket", "threading"},
    "swactor_diag/collector/trimming.py": {"asyncio"},
    "swactor_diag/collector/udp_echo.py": {"asyncio"},
    # programs: where a process begins, its signals and its pid are known
    "examples/pipeline_inference/demo.py": {"os.getpid", "signal"},
    "examples/pipeline_inference/process.py": {"asyncio", "os.getpid", "signal"},
    "sim/command.py": {"time"},
    "swactor_diag/cli/_collector_process.py": {"os.getpid"},
    "swactor_diag/cli/entry.py": {"signal"},
    "swactor_diag/cli/_relay_process.py": {"os.getpid"},
    "swactor_diag/ports.py": {"os.getpid"},
    "swactor_diag/cli/_service.py": {"asyncio", "signal"},
    # virtual time, and what it must keep out
    "sim/guards.py": {"random", "socket", "subprocess", "time", "uuid"},
    "sim/loop.py": {"asyncio", "threading"},
}
"""What each seam file may touch. Everything else in the tree touches nothing of the list above."""

ONLY_IN: dict[str, tuple[str, ...]] = {
    "iroh": ("swactor/cluster/transport/",),
    "aiohttp": (
        "swactor/relay/server.py",
        "swactor/relay/_carrier.py",
        "swactor/relay/_door.py",
        "swactor/relay/_routes.py",
        "swactor/relay/admin.py",
        "swactor/relay/testing.py",
        "swactor_diag/collector/",
    ),
    "httpx": ("swactor_diag/delivery/http.py", "swactor_diag/delivery/connect.py"),
    "httpcore": ("swactor_diag/delivery/connect.py",),
    "psutil": ("swactor_diag/introspect/_psutil_proc.py",),
    "typer": ("swactor_diag/cli/", "sim/command.py", "examples/"),
    "rich": ("swactor_diag/cli/", "sim/command.py", "examples/"),
    "cryptography": ("swactor/cluster/identity.py", "swactor/relay/protocol.py", "swactor/relay/testing.py"),
}
"""Libraries that only these places know."""


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize("path", sources(), ids=name)
def test_only_seam_files_touch_the_machine(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    touched = {module.split(".")[0] for module in imports(tree)} & BANNED_MODULES
    touched |= set(calls(tree)) & BANNED_CALLS
    assert touched <= SEAMS.get(name(path), set())


@pytest.mark.parametrize("path", sources(), ids=name)
def test_private_modules_are_imported_inside_their_own_package_only(path: Path) -> None:
    own = name(path.parent).replace("/", ".")
    for module in imports(ast.parse(path.read_text(encoding="utf-8"))):
        parts = module.split(".")
        if parts[0] not in PACKAGES:
            continue
        private = next(
            (at for at, part in enumerate(parts) if part.startswith("_") and part != "__init__"), None
        )
        if private is not None:
            owner = ".".join(parts[:private])
            assert own == owner, f"{module} is private to {owner}"


@pytest.mark.parametrize("path", sorted((ROOT / "swactor").glob("*.py")), ids=name)
def test_the_runtime_knows_neither_cluster_nor_relay(path: Path) -> None:
    for module in imports(ast.parse(path.read_text(encoding="utf-8"))):
        assert not module.startswith(("swactor.cluster", "swactor.relay"))


@pytest.mark.parametrize("path", sources(), ids=name)
def test_a_library_is_known_to_its_own_place_only(path: Path) -> None:
    for module in imports(ast.parse(path.read_text(encoding="utf-8"))):
        places = ONLY_IN.get(module.split(".")[0])
        if places is not None:
            assert name(path).startswith(places), f"{module} belongs in {places}"


def test_every_seam_exists_and_still_needs_what_it_is_allowed() -> None:
    for seam, allowed in SEAMS.items():
        tree = ast.parse((ROOT / seam).read_text(encoding="utf-8"))
        touched = {module.split(".")[0] for module in imports(tree)} | set(calls(tree))
        assert allowed <= touched, f"{seam} no longer touches {allowed - touched}"
