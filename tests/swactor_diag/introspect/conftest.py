"""A proc root that is written down in a test, and a clock that is set by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from swactor import ActorId, ActorRef
from swactor_diag.introspect import ProcReadError
from swactor_diag.introspect.host import LinkState
from swactor_process import ProcessExited, ProcessStarted

T = TypeVar("T")
FIXTURES = Path(__file__).parents[2] / "fixtures" / "proc"


class WrittenProc:
    """Files by path. A `ProcReadError` as value is raised; a path that is not there does not exist."""

    def __init__(self) -> None:
        self.files: dict[str, str | ProcReadError] = {"self/stat": ""}
        self.folders: dict[str, tuple[str, ...] | ProcReadError] = {}
        self.reads: list[str] = []

    def read_text(self, path: str) -> str | None:
        self.reads.append(path)
        return _given(self.files.get(path))

    def list_dir(self, path: str) -> tuple[str, ...] | None:
        self.reads.append(path)
        return _given(self.folders.get(path))

    def add_process(
        self, pid: int, *, start: int = 500, state: str = "S", name: str = "worker", threads: int = 3
    ) -> None:
        fields = (
            f"{pid} ({name}) {state} 7 1 1 0 -1 0 0 0 0 0 300 200 0 0 20 0 {threads} 0 {start} 4096000 250 0"
        )
        self.files[f"{pid}/stat"] = fields
        self.files[f"{pid}/cmdline"] = "python3\0worker.py\0--stage\0001\0"
        self.folders[f"{pid}/fd"] = ("0", "1", "2")

    def remove_process(self, pid: int) -> None:
        for name in ("stat", "cmdline"):
            self.files.pop(f"{pid}/{name}")
        self.folders.pop(f"{pid}/fd")


class WrittenLinks:
    """Two interfaces, and an address of one that nobody asks for."""

    def addresses(self) -> tuple[tuple[str, str], ...]:
        return ("lo", "127.0.0.1"), ("eth0", "192.0.2.2"), ("wg9", "10.9.8.7")

    def state(self, name: str) -> LinkState | None:
        return {"lo": LinkState(mtu=65536, up=True), "eth0": LinkState(mtu=1400, up=True)}.get(name)


@pytest.fixture
def links() -> WrittenLinks:
    return WrittenLinks()


def _given(value: T | ProcReadError | None) -> T | None:
    if isinstance(value, ProcReadError):
        raise value
    return value


class HandClock:
    """Monotonic and wall time as a test sets them."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.now_ms = 1_700_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ms


class NoRef(ActorRef[object]):
    """The address of a process actor that nobody talks to."""

    @property
    def actor_id(self) -> ActorId:
        return ActorId("/process", 1)

    def tell(self, message: object) -> None:
        raise AssertionError

    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any:
        raise AssertionError

    async def send(self, message: object) -> None:
        raise AssertionError

    def add_watcher(self, watcher: object) -> None:
        raise AssertionError

    def remove_watcher(self, watcher: object) -> None:
        raise AssertionError

    def notify_down(self, down: object) -> None:
        raise AssertionError


@pytest.fixture
def proc() -> WrittenProc:
    return WrittenProc()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def captured() -> Path:
    return FIXTURES


@pytest.fixture
def started() -> Callable[..., ProcessStarted]:
    def make(spawn_id: str = "s1", **changes: object) -> ProcessStarted:
        values: dict[str, object] = {
            "process": NoRef(),
            "spawn_id": spawn_id,
            "label": "worker",
            "pid": 42,
            "parent_pid": 7,
            "start_time": 500,
            "command": ("python3", "worker.py"),
            "started_at_ms": 1_700_000_000_000,
            "guarded": True,
        }
        return ProcessStarted(**{**values, **changes})  # type: ignore[arg-type]  # a table of field values

    return make


@pytest.fixture
def exited() -> Callable[..., ProcessExited]:
    def make(spawn_id: str = "s1", **changes: object) -> ProcessExited:
        values: dict[str, object] = {
            "process": NoRef(),
            "spawn_id": spawn_id,
            "label": "worker",
            "pid": 42,
            "start_time": 500,
            "command": ("python3", "worker.py"),
            "exit_code": 3,
            "signal": None,
            "status_lost": False,
            "asked_for": False,
            "escalated": False,
            "uptime_ms": 1_250,
            "exited_at_ms": 1_700_000_001_250,
            "stderr_tail": "cannot open device",
            "eof_reached": True,
            "survivors": (),
            "dropped_lines": 0,
            "lost_stdin_bytes": 0,
        }
        return ProcessExited(**{**values, **changes})  # type: ignore[arg-type]  # a table of field values

    return make
