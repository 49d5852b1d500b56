"""``swactor relay`` as operators meet it: its settings, its signals, and what is told when it is killed."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swactor.relay import Instant, RelaySessionClosed, RelaySessionOpened, Session
from swactor.relay.journal import Journal
from swactor.relay.testing import RelayClient
from swactor_diag.postproc.load import Run, load_run

WAIT_S = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def environment(more: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWACTOR_")}
    return clean | {"COLUMNS": "200"} | more


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "swactor_diag.cli.main", *arguments]


class Service:
    """A command that listens; ``stop`` ends it and returns what it had to say."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def stop(self, number: int = signal.SIGTERM) -> tuple[int | None, str]:
        self.process.send_signal(number)
        async with asyncio.timeout(WAIT_S):
            _, err = await self.process.communicate()
        return self.process.returncode, err.decode()


@contextlib.asynccontextmanager
async def service(*arguments: str, **env: str) -> AsyncIterator[Service]:
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(env),
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            ready = json.loads(await process.stdout.readline())
        yield Service(process, ready["url"])
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment(env),
        check=False,
    )


async def bundle_of(collector: Service, file: Path) -> Run:
    fetched = await asyncio.to_thread(run, "bundle", "fetch", collector.url, "run-1", "-o", str(file))
    assert fetched.returncode == 0, fetched.stderr
    return load_run(file)


def ends(run: Run) -> list[tuple[int, str, str]]:
    """Return session, initiator and reason of every close in a bundle, by session."""
    found = []
    for node in run.nodes:
        for record in node.records:
            if isinstance(event := record.event, RelaySessionClosed):
                assert isinstance(event.session_id, int)
                found.append((event.session_id, event.close_initiator.value, event.close_reason))
    return sorted(found)


async def test_sessions_of_a_relay_that_gets_sigterm_are_in_the_bundle(tmp_path: Path) -> None:
    """FC-086."""
    async with service("collector", "--port", "0", "--root", str(tmp_path / "root")) as collector:
        env = {"SWACTOR_DIAG_COLLECTOR_URL": collector.url, "SWACTOR_DIAG_RUN_ID": "run-1"}
        async with service("relay", "--port", "0", **env) as relay:
            clients = [await RelayClient(relay.url, seed).open() for seed in (1, 2)]
            told = [asyncio.create_task(client.goodbye()) for client in clients]
            status, err = await relay.stop()
            assert [await goodbye for goodbye in told] == [(1001, "relay_shutdown")] * 2
            for client in clients:
                await client.drop()
        bundle = await bundle_of(collector, tmp_path / "bundle.tar.gz")

    assert status == 0
    assert "relay stopped (SIGTERM)" in err
    assert ends(bundle) == [(1, "relay", "relay_shutdown"), (2, "relay", "relay_shutdown")]


async def test_sessions_of_a_relay_that_is_killed_are_told_by_the_next_one(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    async with service("collector", "--port", "0", "--root", str(tmp_path / "root")) as collector:
        env = {
            "SWACTOR_DIAG_COLLECTOR_URL": collector.url,
            "SWACTOR_DIAG_RUN_ID": "run-1",
            "SWACTOR_RELAY_JOURNAL_FILE": journal,
        }
        async with service("relay", "--port", "0", **env) as relay:
            client = await RelayClient(relay.url, 1).open()
            await relay.stop(signal.SIGKILL)
            await client.drop()
        async with service("relay", "--port", "0", **env) as relay:
            again = await RelayClient(relay.url, 1).open()
            await relay.stop()
            await again.drop()
        bundle = await bundle_of(collector, tmp_path / "bundle.tar.gz")

    assert ends(bundle) == [(1, "relay", "crashed"), (2, "relay", "relay_shutdown")]
    records = [record for node in bundle.nodes for record in node.records]
    opened = [record.event for record in records if isinstance(record.event, RelaySessionOpened)]
    assert 2 in {event.session_id for event in opened}


async def test_a_crowd_that_was_open_at_a_crash_is_told_of_one_by_one(tmp_path: Path) -> None:
    path, crowd, now = tmp_path / "journal", 4000, Instant(5_000_000_000, 1_700_000_005_000)
    journal, _ = Journal.open(path, now, idle_limit_ms=25_000)
    journal.begin(now)
    for number in range(1, crowd + 1):
        key = number.to_bytes(32, "big")
        journal.opened(Session(number, key, opened=now, subprotocol="iroh-relay-v2", remote_address=""))
    journal.close()  # As the kernel does for a process that is killed.

    async with service("collector", "--port", "0", "--root", str(tmp_path / "root")) as collector:
        env = {"SWACTOR_DIAG_COLLECTOR_URL": collector.url, "SWACTOR_DIAG_RUN_ID": "run-1"}
        async with service("relay", "--port", "0", "--journal-file", str(path), **env) as relay:
            await relay.stop()
        bundle = await bundle_of(collector, tmp_path / "bundle.tar.gz")

    assert ends(bundle) == [(number, "relay", "crashed") for number in range(1, crowd + 1)]


async def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    settings = tmp_path / "relay.toml"
    (tmp_path / "token").write_text("correct-horse\n")
    settings.write_text(
        f'port = 1\nadvertised_url = "http://file.example/"\nhost = "127.0.0.9"\n'
        f'token_file = "{tmp_path / "token"}"\nqueue_frames_max = 100\nsubprotocols = ["iroh-relay-v2"]\n'
    )
    env = {"SWACTOR_RELAY_PORT": "2", "SWACTOR_RELAY_ADVERTISED_URL": "http://env.example/"}

    async with service("relay", "--config", str(settings), "--port", "0", **env) as relay:
        assert relay.url == "http://env.example/"
        status, err = await relay.stop()

    assert status == 0
    assert 'relay_url="http://env.example/"' in err
    assert "correct-horse" not in err


async def test_every_option_can_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("correct-horse\n")
    clients = [RelayClient("http://nowhere/", seed) for seed in (1, 2, 3)]
    env = {
        "SWACTOR_RELAY_HOST": "127.0.0.1",
        "SWACTOR_RELAY_PORT": "0",
        "SWACTOR_RELAY_TOKEN_FILE": str(tmp_path / "token"),
        "SWACTOR_RELAY_READ_TOKEN_FILE": str(tmp_path / "token"),
        "SWACTOR_RELAY_ADMIN_TOKEN_FILE": str(tmp_path / "token"),
        "SWACTOR_RELAY_JOURNAL_FILE": str(tmp_path / "journal"),
        "SWACTOR_RELAY_ALLOW": " ".join(client.node_id for client in clients[:2]),
        "SWACTOR_RELAY_DRAIN_S": "0.1",
        "SWACTOR_RELAY_OPENS_PER_S_MAX": "50",
        "SWACTOR_DIAG_COLLECTOR_TOKEN_FILE": str(tmp_path / "token"),
    }
    async with service("relay", **env) as relay:
        for seed, answer in ((2, b"\x02"), (3, b"\x03\x0eid not allowed")):
            client = RelayClient(relay.url, seed, token="correct-horse")
            clients.append(client)
            await client.send(client.answer(await client.connect()))
            assert await client.receive() == answer
        status, err = await relay.stop()
    for client in clients:
        await client.drop()

    assert status == 0
    assert (tmp_path / "journal").exists()
    assert "relay_token=<what the token file holds>); only 2 listed node ids are admitted" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "prot is not one of"),
        ('token = "correct-horse"', "token is not one of"),
        ('port = "many"', "Expected `int`, got `str` - at `$.port`"),
        ("port = 70000", "relay setting port: 70000 is not in 0..65535"),
        ('allowed_ids = ["abc"]', "allowed_ids: a node id is 64 lower-case hex digits"),
        ('subprotocols = ["chat"]', "Invalid enum value 'chat' - at `$.subprotocols[0]`"),
        ("port = ", "Invalid value"),
        ('certificate_file = "/nowhere/cert.pem"', "certificate_file: cannot be used"),
        ('journal_file = "/nowhere/journal"', "cannot open the journal /nowhere/journal"),
    ],
)
def test_a_wrong_settings_file_is_told_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    settings = tmp_path / "relay.toml"
    settings.write_text(text)

    result = run("relay", "--config", str(settings))

    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
