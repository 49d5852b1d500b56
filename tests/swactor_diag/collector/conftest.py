"""Collectors and nodes as processes of their own, which a test may kill."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest

WAIT_S = 60
NODE = Path(__file__).parents[2] / "fixtures" / "nodes" / "reporting_node.py"

T = TypeVar("T")


def until(found: Callable[[], T | None], what: str) -> T:
    """Ask again and again until there is an answer that is true."""
    deadline = monotonic() + WAIT_S
    while monotonic() < deadline:
        answer = found()
        if answer:
            return answer
        sleep(0.02)
    raise AssertionError(f"not within {WAIT_S} s: {what}")


class CollectorProcess:
    """``swactor collector``, and the requests of a test to it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        assert process.stdout is not None
        self.url: str = json.loads(process.stdout.readline())["url"]
        self.port = int(self.url.rpartition(":")[2])

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=body, headers=named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.read(), dict(answer.headers)

    def post(self, batch: str, body: bytes, *, run: str = "run-1", node: str = "a1" * 32) -> int:
        kind = batch.split("-")[1]
        return self.ask("POST", f"/diag/{kind}", body, x_run_id=run, x_node_id=node, x_batch_id=batch)[0]

    def get(self, path: str) -> bytes:
        status, body, _ = self.ask("GET", path)
        assert status == 200, body
        return body

    def bundle(self, run: str = "run-1") -> bytes:
        return self.get(f"/diag/bundle/{run}")

    def run(self, run: str = "run-1") -> dict[str, Any]:
        """Return what is known of a run; nothing before its first record."""
        status, body, _ = self.ask("GET", f"/diag/runs/{run}")
        found: dict[str, Any] = json.loads(body) if status == 200 else {"nodes": []}
        return found

    def rss_bytes(self, field: str = "VmRSS") -> int:
        found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)


class Processes:
    """Starts processes; those that a test leaves behind are killed."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def collector(
        self,
        *options: str,
        before: tuple[str, ...] = (),
        settings: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> CollectorProcess:
        command = (*before, sys.executable, "-m", "swactor_diag.cli.main", "collector", *options)
        named = (word for setting in settings for word in ("--set", setting))
        return CollectorProcess(self._start(*command, *named, **(env or {})))

    def node(self, url: str, *, role: str, run: str = "run-1", **env: str) -> "subprocess.Popen[bytes]":
        told = {
            "SWACTOR_DIAG_COLLECTOR_URL": url,
            "SWACTOR_DIAG_RUN_ID": run,
            "SWACTOR_DIAG_NODE_ROLE": role,
            **env,
        }
        return self._start(sys.executable, str(NODE), **told)

    def _start(self, *command: str, **env: str) -> "subprocess.Popen[bytes]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SWACTOR_")}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean | env,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate(timeout=WAIT_S)


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.end()


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    where = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *where], check=True, capture_output=True)
    return cert, key
