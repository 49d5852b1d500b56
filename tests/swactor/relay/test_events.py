"""Close reasons: the set is closed, explained, documented, and readable by older and newer programs."""

import re
from pathlib import Path

import msgspec
import pytest

from swactor.relay import CLOSE_RULES, CloseInitiator, CloseReason, RelaySessionClosed, RelaySessionOpened

DOCUMENT = Path(__file__).parents[3] / "docs" / "relay.md"
LEGACY_CLOSED = {
    "type": "RelaySessionClosed",
    "peer_node_id_hex": "ab" * 32,
    "opened_at_ms": 1,
    "closed_at_ms": 5,
    "duration_ms": 4,
    "close_initiator": "remote",
    "close_reason": "peer went away",
    "bytes_rx": 10,
    "bytes_tx": 20,
}


def test_every_reason_has_a_rule() -> None:
    assert set(CLOSE_RULES) == set(CloseReason)
    assert all(rule.initiator is not CloseInitiator.UNRECOGNIZED for rule in CLOSE_RULES.values())


def test_every_written_initiator_is_the_initiator_of_some_reason() -> None:
    used = {rule.initiator for rule in CLOSE_RULES.values()}

    assert used == set(CloseInitiator) - {CloseInitiator.UNRECOGNIZED}


def test_the_documented_table_is_the_one_in_the_code() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \| (.*?) \|(.*?)\|$", DOCUMENT.read_text(), re.MULTILINE
    )

    assert [
        (reason, initiator, evidence, meaning, note.strip())
        for reason, initiator, evidence, meaning, note in rows
    ] == [
        (reason, rule.initiator, rule.evidence, rule.meaning, rule.ambiguous)
        for reason, rule in CLOSE_RULES.items()
    ]


def test_a_record_of_the_original_is_read() -> None:
    event = msgspec.convert(LEGACY_CLOSED, RelaySessionClosed)

    assert (event.close_initiator, event.close_reason) == (CloseInitiator.REMOTE, "peer went away")
    assert event.session_id is msgspec.UNSET


def test_an_initiator_of_a_newer_relay_is_read_as_unrecognized() -> None:
    event = msgspec.convert(LEGACY_CLOSED | {"close_initiator": "cosmic_ray"}, RelaySessionClosed)

    assert event.close_initiator is CloseInitiator.UNRECOGNIZED


def test_fields_that_were_not_measured_are_not_written() -> None:
    written = msgspec.to_builtins(RelaySessionOpened(peer_node_id_hex="ab" * 32, at_ms=7))

    assert written == {"type": "RelaySessionOpened", "peer_node_id_hex": "ab" * 32, "at_ms": 7}


@pytest.mark.parametrize("reason", list(CloseReason))
def test_a_reason_is_written_as_its_text(reason: CloseReason) -> None:
    event = msgspec.convert(LEGACY_CLOSED, RelaySessionClosed)

    written = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(event, close_reason=reason)))

    assert written["close_reason"] == reason.value
