"""Batches: ids, sizes, and events that cannot be written."""

import msgspec
import pytest

from swactor import ActorSpawned, Event
from swactor_diag.delivery.batches import BATCH_BYTES_MAX, BatchMaker
from swactor_diag.recorder import Noted
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom


def noted(number: int, size: int = 1) -> Noted:
    return Noted(number, 1, Custom(kind="made", fields={"text": "x" * size}))


def test_fc046_an_id_names_boot_kind_and_number(identity: Identity) -> None:
    maker = BatchMaker(identity, boot_id="b7")
    boot = maker.boot()
    assert boot is not None
    assert boot.batch_id == "b7-boot-000001"
    assert maker.boot() is None
    assert [batch.batch_id for batch in maker.events([noted(n) for n in range(513)])] == [
        "b7-events-000001",
        "b7-events-000002",
    ]
    assert maker.finalize("done").batch_id == "b7-finalize-000001"


def test_no_batch_grows_beyond_its_limit(identity: Identity) -> None:
    batches = BatchMaker(identity, boot_id="b1").events([noted(n, 1_000_000) for n in range(10)])
    assert all(len(batch.body) <= BATCH_BYTES_MAX + 2 for batch in batches)
    assert sum(batch.events for batch in batches) == 10


def test_an_event_beyond_the_limit_is_replaced_by_an_error_with_its_number(identity: Identity) -> None:
    (batch,) = BatchMaker(identity, boot_id="b1").events([noted(5, BATCH_BYTES_MAX)])
    (row,) = msgspec.json.decode(batch.body)
    assert (row["monotonic_seq"], row["type"], row["component"]) == (5, "Error", "recorder")


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (ActorSpawned(actor="/\udce9", actor_type="Stage"), {"type": "ActorSpawned", "actor": "/�"}),
        (
            Custom(kind="\udce9", fields={"\udce9": ["\udce9", (1, {"n": b"x", "\udce9": None})]}),
            {"type": "Custom", "kind": "�", "fields": {"�": ["�", [1, {"n": "eA==", "�": None}]]}},
        ),
    ],
)
def test_an_event_with_what_is_no_text_keeps_all_the_rest(
    identity: Identity, event: Event, fields: dict[str, object]
) -> None:
    (batch,) = BatchMaker(identity, boot_id="b1").events([Noted(7, 1, event)])
    (row,) = msgspec.json.decode(batch.body)
    assert row.items() >= fields.items()
    assert row["monotonic_seq"] == 7


def test_the_reason_of_an_end_may_hold_what_is_no_text(identity: Identity) -> None:
    record = BatchMaker(identity, boot_id="b1").finalize("no room for caf\udce9")
    assert msgspec.json.decode(record.body) == {"reason": "no room for caf�"}


class Moved(Event, frozen=True, kw_only=True):
    """As an application may define it, who knows nothing of envelopes."""

    node_id: str


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Custom(kind="odd", fields={"n": object()}), "Custom not written"),
        (Moved(node_id="elsewhere"), "Moved not written: an event must not have fields called"),
    ],
)
def test_an_event_that_cannot_be_written_is_replaced_by_an_error_with_its_number(
    identity: Identity, event: Event, why: str
) -> None:
    (batch,) = BatchMaker(identity, boot_id="b1").events([noted(1), Noted(2, 1, event)])
    _, row = msgspec.json.decode(batch.body)
    assert (row["node_id"], row["monotonic_seq"], row["type"]) == (identity.node_id_hex, 2, "Error")
    assert row["message"].startswith(why)
