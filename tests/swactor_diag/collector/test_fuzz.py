"""Whatever is sent to a collector: it answers, stores nothing outside of its folder, and stays small.

The collector is a process of its own, so that its memory can be measured. Requests are written by hand,
byte by byte: a client library would refuse to send most of them.
"""

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from swactor_diag.zstd_library import zstd

WAIT_S = 30
BODY_BYTES_MAX = 2_000_000
GROWTH_BYTES_MAX = 64 * 1024 * 1024
"""Four bodies as large as may be, as sent and as inflated, and what an allocator keeps."""

T = TypeVar("T")
Answer = tuple[int, dict[str, str], bytes]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SWACTOR_")}


class Collector:
    """A collector below ``folder``, with tight limits, and the means to ask it for anything."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.root = folder / "root"
        limits = (
            f"body_bytes_max={BODY_BYTES_MAX}",
            "body_deadline_s=0.1",
            "idle_s=0.2",
            "finalize_wait_s=0",
        )
        command = [
            *(sys.executable, "-m", "swactor_diag.cli.main", "collector", "--port", "0"),
            *("--root", str(self.root), *options),
            *(word for limit in limits for word in ("--set", limit)),
        ]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment())
        assert self.process.stdout is not None
        self.port = int(json.loads(self.process.stdout.readline())["url"].rpartition(":")[2])
        self.rss_bytes = self.peak_rss_bytes()

    def ask(self, request: bytes, *, only_head: bool = False) -> Answer | None:
        """Send these bytes, and return the answer; None when the connection was closed without one."""
        data, length = b"", None
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S) as connection:
            with contextlib.suppress(ConnectionError):  # refused before all of it was sent
                connection.sendall(request)
            with contextlib.suppress(ConnectionError):
                while length is None or len(data) < length:
                    piece = connection.recv(65536)
                    if not piece:
                        break
                    data += piece
                    length = 0 if only_head and b"\r\n\r\n" in data else length or whole_length(data)
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        if not first:
            return None
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(first.split()[1]), fields, body

    def answer(self, request: bytes, *, only_head: bool = False) -> Answer:
        """Return the answer; a machine that is too busy to send a request in time may try again."""
        for _ in range(5):
            found = self.ask(request, only_head=only_head)
            if found is not None:
                return found
        raise AssertionError(f"no answer to {request!r}")

    def peak_rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def stop(self) -> str:
        """End it in order, and return what it wrote to its log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_S) == 0
        return (self.folder / "log").read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)


def whole_length(data: bytes) -> int | None:
    """Return how long the answer is that begins so; None when it does not say so, or not yet."""
    head, end, _ = data.partition(b"\r\n\r\n")
    found = re.search(rb"\r\nContent-Length: (\d+)", head)
    return len(head) + len(end) + int(found[1]) if end and found else None


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    found = Collector(tmp_path_factory.mktemp("fuzz"))
    yield found
    found.end()


class Sent(bytes):
    """A request that is shown by its beginning only."""

    def __repr__(self) -> str:
        return f"{bytes(self[:600])!r}, {len(self)} bytes"


def request(method: str, path: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: c", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    return Sent("\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body)


# -- what is sent --------------------------------------------------------------------------------------------

ID = st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True)
FEW = st.sampled_from(["run-1", "run-2", "n", "b1-events-000001", "b1-events-000002", "b1-boot-000001"])
IDS = ("x-run-id", "x-node-id", "x-batch-id")
KIND = st.sampled_from(["boot", "events", "snapshot", "finalize"])
HOSTILE = st.sampled_from(
    [
        *(
            "",
            ".",
            "..",
            "../x",
            "..%2f..%2fx",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "%00",
            "a\x00b",
            "\xe4",
            "x" * 129,
        ),
        *("@log", "@bundles", "bundles", "con", "~", "$(id)"),
        *("b1-events-99999999999", "-events-1", "b1-events-0"),
    ]
)
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=150)
NAME = FEW | ID | HOSTILE | TEXT

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
).map(lambda value: json.dumps(value).encode())
BOOT = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(
            ["stage", "orchestrator", "../up", "sim", "", 5, None, ["relay"], {"0": "x"}]
        ),
        "stage_index": st.sampled_from([0, -1, 2**70, "1", None, True]),
        "schema_version": st.sampled_from([1, "1", None]),
        "trigger": st.sampled_from([{"kind": "OnDemand"}, {"kind": 1}, "OnDemand", None]),
        "body": st.sampled_from(
            [{"delivery": {"drops": [{"where": "x", "what": "y", "count": 2**80}, 3]}}, []]
        ),
        "reason": st.sampled_from(["done", 1, None, "x" * 10_000]),
    },
).map(lambda value: json.dumps(value).encode())
ODD = st.sampled_from(
    [
        *(b"", b"null", b"[" * 50_000, b"NaN", b"1e999", b"9" * 5_000, b"\xff", b"\xef\xbb\xbf{}"),
        *(b'"\xed\xa0\x80"', b'"\\ud800"', b"[\n@rec 1 events n b 1 2 3\n]"),
        *(bytes(BODY_BYTES_MAX + 1), b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"'),
    ]
)
ZEROS = bytes(64 * 1024 * 1024)
BOMBS = [("gzip", gzip.compress(ZEROS, 1)), ("zstd", zstd.compress(ZEROS))]
BODY = JSON | BOOT | ODD | st.binary(max_size=200)


def mostly(usual: st.SearchStrategy[T], odd: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """Let most requests through the first checks, so that the later ones are met as well."""
    return st.sampled_from(range(8)).flatmap(lambda number: usual if number else odd)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[tuple[str, str]], bytes]:
    """Return headers and bytes of a body: packed or not, cut off or not, in one piece or in chunks."""
    packing = draw(st.sampled_from(["", "", "gzip", "zstd", "bomb", "mixed"]))
    body = draw(BODY)
    said = draw(
        mostly(st.just(packing), st.sampled_from(["x-gzip", "identity", "br", "gzip, gzip", "GZIP", "\xe4"]))
    )
    match packing:
        case "gzip":
            body = gzip.compress(body, 1)
        case "zstd":
            body = zstd.compress(body)
        case "bomb":
            said, body = draw(st.sampled_from(BOMBS))
        case "mixed":
            said, body = "gzip", gzip.compress(body, 1) + gzip.compress(b"more")
    headers = [("Content-Encoding", said)] if said else []
    length = str(len(body))
    match draw(st.sampled_from(["length", "length", "length", "chunks", "chunks", "cut", "wrong", "none"])):
        case "length":
            headers.append(("Content-Length", length))
        case "cut":
            headers.append(("Content-Length", length))
            body = body[: draw(st.integers(0, len(body)))]
        case "chunks":
            headers.append(("Transfer-Encoding", "chunked"))
            size = draw(st.sampled_from([1, 7, 4096])) if len(body) < 10_000 else 65_536
            pieces = [body[at : at + size] for at in range(0, len(body), size)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            body = body[: draw(mostly(st.just(len(body)), st.integers(0, len(body))))]
        case "wrong":
            length = draw(st.sampled_from(["-1", "1e3", "99999999999999999999", "0", "3", "\xb2"]))
            headers.append(("Content-Length", length))
    return headers, body


@st.composite
def submissions(draw: st.DrawFn) -> bytes:
    headers, body = draw(bodies())
    kind = draw(mostly(KIND, NAME))
    for name in draw(st.sampled_from([IDS, IDS, IDS[:2], IDS[:2], IDS[1:], IDS[:1]])):
        headers.append((name, draw(mostly(FEW, NAME))))
    headers += [("x-node-send-ms", draw(st.sampled_from(["1", "-1", "", "\xb2", "9" * 400]) | TEXT))]
    return request("POST", f"/diag/{quoted(kind)}", draw(st.permutations(headers)), body)


PATHS = st.sampled_from(
    [
        *("/diag/bundle/{}", "/diag/runs/{}", "/diag/runs", "/diag/trims", "/diag/runs/{}/pin", "/metrics"),
        *("/healthz", "/openapi.json", "/diag/{}", "/{}", "/diag/bundle/{}?x={}", "*", "/diag//{}"),
        "http://other/diag/bundle/{}",
    ]
)
METHODS = st.sampled_from(["GET", "GET", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "G@T"])
RANGES = ("bytes=0-0", "bytes=5-", "bytes=-1", "bytes=9-1", "bytes=a-", "bytes=-0", "x", f"bytes={10**30}-")
FIELD = st.sampled_from(
    [
        *(("Range", value) for value in (*RANGES, "bytes=0-1,3-4")),
        *(("If-None-Match", value) for value in ("*", '"x"', 'W/"x", "y"', ",,,", "\xe4" * 50)),
        *(("If-Range", value) for value in ("\xe4", '"x"')),
        *(("Expect", value) for value in ("100-continue", "x")),
        *(("Authorization", "Bearer \xe4"), ("Upgrade", "websocket"), ("Cookie", "x" * 9_000)),
        *(("Accept-Encoding", "gzip"), ("Transfer-Encoding", "chunked")),
    ]
)


@st.composite
def questions(draw: st.DrawFn) -> bytes:
    path = draw(PATHS).format(quoted(draw(FEW | NAME)), "y")
    return request(draw(METHODS), path, draw(st.lists(FIELD, max_size=3)))


def quoted(text: str) -> str:
    """Return ``text`` as the part of a path, as it is if that can be sent at all."""
    return "".join(c if 32 < ord(c) < 127 else f"%{ord(c):02x}" for c in text)


# -- what must hold ------------------------------------------------------------------------------------------


def assert_kept_within(collector: Collector) -> None:
    """Everything that was made lies below the root, under names of the collector or plain ids."""
    assert sorted(path.name for path in collector.folder.iterdir()) == ["log", "root"]
    ours = re.compile(
        r"@log|@bundles|@pins|@trims\.json|[A-Za-z0-9._-]{1,128}|[A-Za-z0-9._-]+@[0-9a-f]{16}\.tar\.gz"
    )
    for path in collector.root.rglob("*"):
        assert ours.fullmatch(path.name), path
        assert not path.is_symlink()


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(submissions() | questions(), min_size=1, max_size=8))
def test_whatever_comes_it_is_answered_and_the_next_one_too(
    collector: Collector, requests: list[bytes]
) -> None:
    """FC-048, FC-049."""
    for sent in requests:
        answer = collector.ask(sent)
        event("no answer" if answer is None else f"answered {answer[0]}")
        # A body that was announced and does not come is given up; whatever else happens is told.
        assert answer is None or answer[0] < 500 or answer[0] in {503, 507}, (sent, answer)
    health = collector.answer(request("GET", "/healthz", []))
    assert health[0] == 200
    assert json.loads(health[2])["files_set_aside"] == 0
    assert_kept_within(collector)
    assert collector.peak_rss_bytes() < collector.rss_bytes + GROWTH_BYTES_MAX


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    noise=st.binary(max_size=400)
    | st.sampled_from([b"\x16\x03\x01\x02", b"GET " + b"/" * 20_000, b"\r\n" * 99])
)
def test_what_is_not_http_is_no_trouble(collector: Collector, noise: bytes) -> None:
    collector.ask(noise)
    health = collector.answer(request("GET", "/healthz", []))
    assert health[0] == 200


def test_after_all_of_it_every_run_still_has_its_bundle(tmp_path: Path) -> None:
    """Also names that sort, label and fold in every way: the runs that a fuzz leaves can be read."""
    collector = Collector(tmp_path)

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(requests=st.lists(submissions(), min_size=1, max_size=8))
    def send(requests: list[bytes]) -> None:
        for sent in requests:
            collector.ask(sent)

    try:
        send()
        listed = collector.answer(request("GET", "/diag/runs", []))
        for run in json.loads(listed[2]):
            assert collector.answer(request("GET", f"/diag/bundle/{run['run_id']}", []))[0] == 200
        log = collector.stop()
        assert "Traceback" not in log, log
    finally:
        collector.end()


# -- the description -----------------------------------------------------------------------------------------


def described(collector: Collector) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(collector.answer(request("GET", "/openapi.json", []))[2])
    return found


def test_the_served_description_is_openapi(collector: Collector) -> None:
    validate(msgspec.to_builtins(described(collector)))


def values_of(schema: dict[str, Any], *, valid: bool) -> st.SearchStrategy[str]:
    """Return values of a parameter that its schema allows, or that it forbids."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) if valid else st.sampled_from(["bogus", "Boot", "boots"])
    if "pattern" in schema:
        allowed = st.from_regex(schema["pattern"], fullmatch=True).filter(
            lambda text: text not in {".", ".."}
        )
        return FEW | allowed if valid else st.sampled_from(["x" * 129, "a b", "a+b", "..%2f", "@"])
    assert schema["type"] == "integer"
    return st.integers(0, 2**40).map(str)


@st.composite
def operations(draw: st.DrawFn, description: dict[str, Any], *, valid: bool) -> tuple[dict[str, Any], bytes]:
    """Return one operation of the description, and a request for it made from its parameters."""
    method, path = draw(
        st.sampled_from([(method, path) for path, one in description["paths"].items() for method in one])
    )
    operation = description["paths"][path][method]
    headers: list[tuple[str, str]] = []
    for parameter in operation["parameters"]:
        spoil = not valid and draw(st.booleans())
        if spoil and parameter["in"] == "header" and draw(st.booleans()):
            continue
        value = draw(values_of(parameter["schema"], valid=not spoil))
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quoted(value))
        else:
            headers.append((parameter["name"], value))
    body = draw(JSON if valid else JSON | ODD) if "requestBody" in operation else b""
    match dict(headers).get("Content-Encoding"):
        case "gzip":
            body = gzip.compress(body, 1)
        case "zstd":
            body = zstd.compress(body)
    headers.append(("Content-Length", str(len(body))))
    return operation, request(method.upper(), path, headers, body)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(data=st.data(), valid=st.booleans())
def test_every_answer_is_one_that_the_description_promises(
    collector: Collector, data: st.DataObject, *, valid: bool
) -> None:
    description = described(collector)
    operation, sent = data.draw(operations(description, valid=valid))

    status, headers, body = collector.answer(sent, only_head=operation["operationId"] == "stream")

    assert str(status) in operation["responses"], (sent, body)
    event(f"{operation['operationId']} {status}")
    if valid:
        assert status in {200, 404, 422}, (
            sent[:300],
            body,
        )  # nothing is there yet, or another body under its id
    content = operation["responses"][str(status)].get("content", {})
    kind = headers["content-type"].partition(";")[0]
    assert kind in content
    if kind == "application/json":
        schema = content[kind]["schema"] | {"components": description["components"]}
        Draft202012Validator(schema).validate(json.loads(body))
