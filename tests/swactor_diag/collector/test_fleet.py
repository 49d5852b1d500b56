"""Several collectors on one object store, as processes, over a real S3 protocol: each has what all have."""

import json
import urllib.request
from collections.abc import Iterator
from itertools import cycle, islice

import pytest
from moto.server import ThreadedMotoServer

from .conftest import CollectorProcess, Processes, until

NODES = [f"{number:02d}" * 32 for number in range(4)]


@pytest.fixture
def store() -> Iterator[dict[str, str]]:
    """The environment of a collector whose bucket is empty."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    send("POST", f"{url}/moto-api/reset")  # all servers of a process share what they store
    send("PUT", f"{url}/runs")
    yield {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }
    server.stop()


def send(method: str, url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method=method)).close()


def start(processes: Processes, store: dict[str, str]) -> CollectorProcess:
    return processes.collector(
        "--port", "0", settings=("storage=s3://runs/diag", "finalize_wait_s=0"), env=store
    )


@pytest.mark.timeout(180)
def test_any_of_a_fleet_has_every_run_whole_also_after_one_was_killed(
    processes: Processes, store: dict[str, str]
) -> None:
    fleet = [start(processes, store) for _ in range(3)]
    acknowledged = set()
    # A balancer sends each request to the next one; a sender whose answer was lost repeats at another.
    for number, (node, one) in enumerate(islice(zip(cycle(NODES), cycle(fleet), strict=False), 36), start=1):
        batch = f"b1-events-{number:06d}"
        assert one.post(batch, b"[%d]" % number, node=node) == 200
        acknowledged.add((node, batch))
        if number % 5 == 0:
            assert fleet[(number + 1) % 3].post(batch, b"[%d]" % number, node=node) == 200
    fleet[1].kill()
    assert fleet[0].post("b1-finalize-000001", b"{}", node=NODES[0]) == 200

    bundles = [one.bundle() for one in (fleet[0], fleet[2], start(processes, store))]

    assert len(set(bundles)) == 1
    run = fleet[2].run()
    assert sum(node["event_batches"] for node in run["nodes"]) == len(acknowledged)
    assert run["finalize_received"] is True
    assert run.get("set_aside") == []


@pytest.mark.timeout(180)
def test_a_pin_and_a_list_are_those_of_the_fleet(processes: Processes, store: dict[str, str]) -> None:
    one, other = start(processes, store), start(processes, store)
    assert one.post("b1-boot-000001", b'{"role": "relay"}') == 200

    assert [run["run_id"] for run in json.loads(other.get("/diag/runs"))] == ["run-1"]
    assert other.ask("PUT", "/diag/runs/run-1/pin")[0] == 200
    assert one.ask("DELETE", "/diag/runs/run-1/pin")[0] == 200


@pytest.mark.timeout(180)
def test_a_store_that_is_away_is_told_and_used_again_when_it_is_back(
    processes: Processes, store: dict[str, str]
) -> None:
    """Nothing is acknowledged that is not in the store."""
    collector = start(processes, store)
    assert collector.post("b1-boot-000001", b"{}") == 200
    send("POST", f"{store['AWS_ENDPOINT_URL']}/moto-api/reset")

    status, answer, headers = collector.ask(
        "POST", "/diag/events", b"[1]", x_run_id="run-1", x_node_id=NODES[0], x_batch_id="b1-events-000001"
    )
    assert (status, json.loads(answer)["code"]) == (503, "storage_failed")
    assert int(headers["Retry-After"]) >= 1
    send("PUT", f"{store['AWS_ENDPOINT_URL']}/runs")

    until(
        lambda: collector.post("b1-events-000001", b"[1]", node=NODES[0]) == 200, "the bucket is there again"
    )
    assert [node["event_batches"] for node in collector.run()["nodes"]] == [1]
