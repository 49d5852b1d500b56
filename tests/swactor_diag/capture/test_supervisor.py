"""The opt-in: what a node writes, and what it gets for it."""

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec import Struct, structs

from swactor import (
    Actor,
    ActorFailed,
    ActorRef,
    ActorSystem,
    Context,
    NameTakenError,
    SystemClock,
    SystemRandom,
)
from swactor.cluster import ClusterNotRunningError
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport.memory import MemoryHub
from swactor.testing import Recorder, until
from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.sink import SinkAddressError
from swactor_diag.delivery.spool import MemorySpool
from swactor_diag.identity import MachineFacts, identity_from_env
from swactor_diag.introspect import LinuxProc, kernel_units
from swactor_diag.ports import Ports, open_spool, production_ports
from swactor_diag.schema.blocks import (
    ActorsBlock,
    IntrospectionOutcome,
    ProcessBlock,
    SubprocessBlock,
    SubprocessStatus,
)
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import SubprocessExited
from swactor_diag.schema.network import RentalBlock
from swactor_diag.schema.reading import read_batch
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind
from swactor_diag.supervisor import Diagnostics, of_cluster
from swactor_process import (
    LinuxSpawner,
    ProcessExited,
    ProcessSpec,
    ProcessStarted,
    spawn_process,
)

from .conftest import ListSink


class Weather(Struct, frozen=True):
    celsius: int


class FakeWeather:
    name, record = "weather", Weather

    def observe(self) -> Weather:
        return Weather(21)


async def test_a_fake_introspector_is_installed_and_read_back(identity: Identity) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, introspectors=[FakeWeather()])
        snapshot = await diag.snapshot()
    assert snapshot.body.others["weather"] == {"celsius": 21}


async def test_names_of_introspectors_are_unique(identity: Identity) -> None:
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="weather"):
            await Diagnostics.start(system, identity, introspectors=[FakeWeather(), FakeWeather()])


@pytest.mark.parametrize("name", ["shipper", "delivery", "reachability", "introspectors", "sky"])
async def test_an_introspector_does_not_take_what_is_somebody_elses(identity: Identity, name: str) -> None:
    taken, inside = FakeWeather(), FakeWeather()
    taken.name, inside.name = name, "sky.weather"
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match=name):
            await Diagnostics.start(system, identity, introspectors=[taken, inside])


class Nameless:
    record = Weather

    def observe(self) -> Weather:
        return Weather(21)


class WithoutRecord(Nameless):
    name, record = "weather", None  # type: ignore[assignment]  # a mistake


class OfAGeneric(Nameless):
    name, record = "weather", list[int]  # type: ignore[assignment]  # a mistake


class WithBlankPart(FakeWeather):
    name = "sky."


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (Nameless(), "name of .*Nameless"),
        (WithBlankPart(), "name of .*WithBlankPart"),
        (WithoutRecord(), "record of introspector weather"),
        (OfAGeneric(), "record of introspector weather"),
        (FakeWeather, "FakeWeather'> is no introspector"),
        (42, "42 is no introspector"),
    ],
)
async def test_what_is_no_introspector_is_refused_at_once(
    identity: Identity, mistake: Any, said: str
) -> None:
    """Installed, it would have failed at each snapshot without saying why."""
    async with ActorSystem() as system:
        with pytest.raises((TypeError, ValueError), match=said):
            await Diagnostics.start(system, identity, introspectors=[mistake])


async def test_a_second_start_is_refused_and_leaves_no_recorder_behind(identity: Identity) -> None:
    async with ActorSystem() as system:
        await Diagnostics.start(system, identity)
        before = system.observers
        with pytest.raises(NameTakenError, match="diagnostics"):
            await Diagnostics.start(system, identity)
        assert system.observers == before


def test_ports_that_are_logged_tell_no_secret() -> None:
    ports = production_ports({"HF_TOKEN": "hunter2"}, token="hunter2")
    assert "hunter2" not in repr(ports)


async def test_without_a_collector_nothing_is_shipped_and_everything_else_works(identity: Identity) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity)
        assert await diag.finalize("done") is None
        assert isinstance((await diag.snapshot()).body.subprocess, SubprocessBlock)
        await diag.stop()


class HintingSink(ListSink):
    """Asks for a snapshot with each answer, until it has one."""

    async def post(self, record: Outgoing) -> Answer:
        answer = await super().post(record)
        return structs.replace(answer, snapshot_now=not self.has_snapshot())

    def has_snapshot(self) -> bool:
        return bool(self.of_kind(RecordKind.SNAPSHOT))


class Echo(Actor[int]):
    def on_message(self, ctx: Context[int], message: int) -> int:
        return message


async def test_a_collector_that_wants_a_snapshot_while_the_tree_starts_gets_it(identity: Identity) -> None:
    for asks_before in range(64):  # after some number of asks the loop turns, be it in the midst of a start
        sink = HintingSink()
        async with ActorSystem() as system:
            heard = Recorder(system)
            echo = await system.spawn(Echo())
            for number in range(asks_before):
                await echo.ask(number)
            await Diagnostics.start(system, identity, sink=sink)
            await until(sink.has_snapshot)
        assert heard.of(ActorFailed) == ()


@pytest.fixture
def ports() -> Ports:
    return Ports(
        clock=SystemClock(),
        random=SystemRandom(),
        spawner=LinuxSpawner,
        proc=LinuxProc(),
        units=kernel_units(),
        machine=MachineFacts(pid=os.getpid()),
    )


class Stage(Actor[object]):
    """Owns one child; what it does for diagnostics is to forward two notifications."""

    def __init__(self, spec: ProcessSpec, spawner: LinuxSpawner, subprocesses: ActorRef[object]) -> None:
        self._spec = spec
        self._spawner = spawner
        self._subprocesses = subprocesses

    def on_start(self, ctx: Context[object]) -> None:
        spawn_process(ctx, self._spec, spawner=self._spawner)

    def on_message(self, ctx: Context[object], message: object) -> None:
        match message:
            case ProcessStarted() | ProcessExited():
                self._subprocesses.tell(message)


async def test_a_child_that_runs_is_seen_with_its_figures_by_the_standard_set(
    ports: Ports, identity: Identity
) -> None:
    waits = ProcessSpec(program=sys.executable, args=("-c", "input()"), label="worker")
    async with ActorSystem(clock=ports.clock, random=ports.random) as system:
        diag = await Diagnostics.from_ports(system, identity, ports=ports)
        spawner = LinuxSpawner(system.loop)
        await system.spawn(Stage(waits, spawner, diag.subprocesses), name="stage")
        snapshot = await diag.snapshot()
        while not (
            isinstance(snapshot.body.subprocess, SubprocessBlock) and snapshot.body.subprocess.subprocesses
        ):
            snapshot = await diag.snapshot()
    spawner.close()
    (child,) = snapshot.body.subprocess.subprocesses
    assert (child.status, child.label, child.parent_pid) == (SubprocessStatus.RUNNING, "worker", os.getpid())
    assert isinstance(child.rss_bytes, int)
    assert isinstance(child.open_fd_count, int)
    assert isinstance(snapshot.body.process, ProcessBlock)
    assert isinstance(snapshot.body.actors, ActorsBlock)
    assert {actor.actor.split("#")[0] for actor in snapshot.body.actors.actors} >= {"/stage", "/diagnostics"}
    assert snapshot.problems == ()


class Forgetful(Actor[object]):
    """Owns a child until it is stopped; diagnostics watch the child themselves."""

    def __init__(self, spawner: LinuxSpawner, subprocesses: ActorRef[object]) -> None:
        self._spawner = spawner
        self._subprocesses = subprocesses

    def on_start(self, ctx: Context[object]) -> None:
        waits = ProcessSpec(program=sys.executable, args=("-c", "input()"), label="worker")
        spawn_process(ctx, waits, spawner=self._spawner, watchers=(self._subprocesses,))

    def on_message(self, ctx: Context[object], message: object) -> None:
        pass


async def test_fc053_the_exit_of_a_child_at_shutdown_is_shipped(ports: Ports, identity: Identity) -> None:
    sink = ListSink()
    async with ActorSystem(clock=ports.clock, random=ports.random) as system:
        diag = await Diagnostics.start(system, identity, sink=sink)
        spawner = LinuxSpawner(system.loop)
        await system.spawn(Forgetful(spawner, diag.subprocesses))
    spawner.close()
    (ended,) = [
        record.event
        for batch in sink.records
        if batch.kind is RecordKind.EVENTS
        for record in read_batch(batch.body).records
        if isinstance(record.event, SubprocessExited)
    ]
    assert (ended.label, ended.asked_for) == ("worker", True)


def spooled(run: Path, pattern: str) -> list[Path]:
    return list(run.glob(f"*/{pattern}"))


async def test_one_line_makes_a_node_of_what_the_environment_says(tmp_path: Path) -> None:
    environ = {
        "SWACTOR_DIAG_RUN_ID": "run-7",
        "SWACTOR_DIAG_NODE_ROLE": "stage",
        "SWACTOR_DIAG_SPOOL_DIR": str(tmp_path),
        "SWACTOR_DIAG_COLLECTOR_URL": "http://127.0.0.1:9",
    }
    async with ActorSystem() as system:
        diag = await Diagnostics.from_env(system, environ=environ)
        snapshot = await diag.snapshot()
        await diag.stop()
    who = snapshot.identity
    assert (who.run_id, who.role, who.pid) == ("run-7", "stage", os.getpid())
    assert len(who.node_id_hex) == 64
    assert isinstance(snapshot.body.process, ProcessBlock)
    assert spooled(tmp_path / "run-7", "*-boot-*.bin")


NO_TEXT = os.fsdecode(b"caf\xe9")


async def test_variables_that_are_no_text_cost_the_bytes_that_are_none(tmp_path: Path) -> None:
    folder = tmp_path / NO_TEXT
    environ = {
        "SWACTOR_DIAG_COLLECTOR_URL": "http://127.0.0.1:9",
        "SWACTOR_DIAG_SPOOL_DIR": str(folder),
        "SWACTOR_DIAG_NODE_ROLE": NO_TEXT,
        "SWACTOR_DIAG_HOST_COUNTRY": NO_TEXT,
        "SWACTOR_DIAG_UDP_ECHO": f"{NO_TEXT}:9",
        "SWACTOR_IROH_RELAY_URL": f"http://{NO_TEXT}:80",
        "HOSTNAME": NO_TEXT,
        "CONTAINER_ID": NO_TEXT,
        f"VAST_{NO_TEXT}": NO_TEXT,
    }
    async with ActorSystem() as system:
        diag = await Diagnostics.from_env(system, environ=environ)
        snapshot = await diag.snapshot()
        await diag.stop()
    who = snapshot.identity
    assert {who.role, who.host_country, who.hostname, who.container_id} == {"caf�"}
    assert who.home_relay_url_at_boot == "http://caf�:80"
    assert isinstance(snapshot.body.vastai, RentalBlock)
    assert ("VAST_caf�", "caf�") in snapshot.body.vastai.env_vars
    assert {row.outcome for row in snapshot.body.introspectors} <= {
        IntrospectionOutcome.OK,
        IntrospectionOutcome.NO_DATA,
    }
    assert spooled(folder / who.run_id, "*-boot-*.bin")


async def test_a_node_with_a_transport_is_called_as_the_others_know_it() -> None:
    async with ActorSystem() as system:
        transport = MemoryHub(system.loop).transport(NodeKey(b"\x07" * 32).node_id)
        diag = await Diagnostics.from_env(system, environ={}, transport=transport)
        assert (await diag.snapshot()).identity.node_id_hex == transport.node_id


@pytest.mark.parametrize("address", ["collector:9080", "ftp://x"])
async def test_a_wrong_address_of_the_collector_is_said_at_the_start(address: str) -> None:
    async with ActorSystem() as system:
        with pytest.raises(SinkAddressError, match="http://host:port"):
            await Diagnostics.from_env(system, environ={"SWACTOR_DIAG_COLLECTOR_URL": address})


def test_production_ports_ship_only_where_a_collector_is_named(tmp_path: Path) -> None:
    assert production_ports({}, pid=1).sink is None
    assert production_ports({"SWACTOR_DIAG_COLLECTOR_URL": "  "}, pid=1).sink is None
    environ = {"SWACTOR_DIAG_COLLECTOR_URL": "http://c:9080", "SWACTOR_DIAG_SPOOL_DIR": str(tmp_path)}
    ports = production_ports(environ, pid=1)
    assert ports.sink is not None
    identity = identity_from_env(environ, "ab" * 32, clock=ports.clock, boot_id="b1")
    assert isinstance(open_spool(ports.spool_root, identity), DiskSpool)
    assert isinstance(open_spool(None, identity), MemorySpool)


async def test_production_ports_write_children_down_where_the_environment_says(tmp_path: Path) -> None:
    path = tmp_path / "children"
    async with ActorSystem() as system:
        spawner = production_ports({"SWACTOR_CHILDREN_FILE": f"{path} "}).spawner(system.loop)
        assert path.exists()
        assert isinstance(spawner, LinuxSpawner)
        spawner.close()
    assert not path.exists()


async def test_a_children_file_that_cannot_be_used_does_not_keep_a_node_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "nowhere" / "children"
    async with ActorSystem() as system:
        spawner = production_ports({"SWACTOR_CHILDREN_FILE": str(path)}).spawner(system.loop)
        assert isinstance(spawner, LinuxSpawner)
        spawner.close()
    assert str(path) in caplog.text


def test_a_spool_folder_that_cannot_be_used_does_not_keep_a_node_from_starting(
    tmp_path: Path, identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert isinstance(open_spool(tmp_path / "file", identity), MemorySpool)
    assert "in memory" in caplog.text


def test_a_node_of_a_cluster_has_three_more_blocks() -> None:
    class NotYet:
        def swim_view(self) -> NoReturn:
            raise ClusterNotRunningError("not yet")

        names_view = links_view = swim_view

    names = [introspector.name for introspector in of_cluster(NotYet(), clock=SystemClock())]
    assert names == ["iroh", "swim", "registry"]
