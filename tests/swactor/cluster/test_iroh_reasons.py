"""Native error texts, as measured, and what is made of them."""

import pytest

from swactor.cluster.transport import DialFailed, DialResult, LossKind, LossReason
from swactor.cluster.transport._iroh_reasons import TEXT_MAX, cause, dial_failure, loss_reason

NO_ADDRESS = (
    "ConnectError::Connect (/github/home/.cargo/registry/src/x/iroh-1.4.1/src/endpoint.rs:1073:26)\n"
    "Caused by:\n"
    "    No addressing information available (/github/home/x/iroh-1.4.1/src/endpoint.rs:1144:27)\n"
    "    No address lookup configured (/github/home/x/iroh-1.4.1/src/address_lookup.rs:644:45)"
)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("timed out", DialResult.TIMEOUT),
        ("connect timeout", DialResult.TIMEOUT),
        ("aborted by peer: the server refused to accept a new connection", DialResult.REFUSED),
        ("No route to host (os error 113)", DialResult.NO_ROUTE),
        ("Network is unreachable", DialResult.NO_ROUTE),
        ("No addressing information available", DialResult.NO_ROUTE),
        ("aborted by peer: error 120", DialResult.ERROR),
    ],
)
def test_a_failed_dial_is_classified_by_its_text(text: str, outcome: DialResult) -> None:
    assert dial_failure(text) == DialFailed(outcome, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("closed by peer: heartbeat (code 13)", LossReason(LossKind.CLOSED_BY_PEER, "heartbeat", 13)),
        ("closed by peer: odd (code 1) (code 7)", LossReason(LossKind.CLOSED_BY_PEER, "odd (code 1)", 7)),
        ("closed by peer: 0", LossReason(LossKind.CLOSED_BY_PEER, "", 0)),
        ("timed out", LossReason(LossKind.TIMED_OUT, "timed out")),
        ("reset by peer", LossReason(LossKind.RESET, "reset by peer")),
        ("closed", LossReason(LossKind.CLOSED_HERE, "closed")),
        (
            "aborted by peer: too many gaps in stream buffer",
            LossReason(LossKind.FLOODED, "aborted by peer: too many gaps in stream buffer"),
        ),
        ("something else", LossReason(LossKind.ERROR, "something else")),
    ],
)
def test_the_end_of_a_connection_is_classified_by_its_text(text: str, reason: LossReason) -> None:
    assert loss_reason(text) == reason


def test_the_cause_is_the_chain_without_type_names_and_source_places() -> None:
    assert cause(NO_ADDRESS) == "No addressing information available: No address lookup configured"
    assert cause("Failed to parse relay URL") == "Failed to parse relay URL"
    assert cause("") == "the library gave no reason"


def test_long_texts_are_cut() -> None:
    assert len(dial_failure("x" * 10_000).text) == TEXT_MAX
    assert len(loss_reason("x" * 10_000).text) == TEXT_MAX
