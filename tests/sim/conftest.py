"""Tests of the simulator run in virtual time."""

from pathlib import Path

import pytest

from sim.loop import VirtualLoop
from sim.scenario import Scenario, load


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of small applications and scenarios, importable by name."""
    folder = Path(__file__).parent / "apps"
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def small(apps: Path) -> Scenario:
    """A scenario of two nodes that each own a worker."""
    return load(apps / "small.toml")
