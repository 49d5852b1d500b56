"""What iroh's error texts mean: why a dial failed, why a connection ended. Pure functions of text.

Owns: the two classifications. iroh offers one error type; its cause is in the wording only.
Not here: catching anything (see ``_iroh_connection`` and ``iroh``).
"""

import re

from swactor.cluster.transport._base import DialFailed, DialResult, LossKind, LossReason

TEXT_MAX = 500
"""Longest text kept."""

_SOURCE_PLACE = re.compile(r"\s*\(/\S+\.rs:\d+:\d+\)")

_PEER_CLOSED_WITH_TEXT = re.compile(r"closed by peer: (?P<text>.*) \(code (?P<code>\d+)\)", re.DOTALL)
_PEER_CLOSED = re.compile(r"closed by peer: (?P<code>\d+)")


def cause(message: str) -> str:
    """Return what a native error message says beyond its generic first line, without source file places."""
    lines = [_SOURCE_PLACE.sub("", line).strip() for line in message.splitlines()]
    said = [line for line in lines if line and line != "Caused by:"]
    if not said:
        return "the library gave no reason"
    telling = [line for line in said[1:] if "::" not in line.split(" ", 1)[0]]  # no Rust type names
    return ": ".join(telling or said[-1:])[:TEXT_MAX]


def dial_failure(text: str) -> DialFailed:
    """Return the outcome of a dial that ended with the error ``text`` (see `cause`)."""
    lowered = text.lower()
    if "timeout" in lowered or "timed out" in lowered:
        outcome = DialResult.TIMEOUT
    elif "refused" in lowered:
        outcome = DialResult.REFUSED
    elif "no route" in lowered or "unreachable" in lowered or "no addressing information" in lowered:
        outcome = DialResult.NO_ROUTE
    else:
        outcome = DialResult.ERROR
    return DialFailed(outcome, text[:TEXT_MAX])


def loss_reason(text: str) -> LossReason:
    """Return why a connection ended, from what the native ``closed()`` said.

    ``closed`` alone means "by this side"; the caller knows which of its own acts that was.
    """
    if match := _PEER_CLOSED_WITH_TEXT.search(text) or _PEER_CLOSED.search(text):
        said = match.groupdict().get("text", "")
        return LossReason(LossKind.CLOSED_BY_PEER, said[:TEXT_MAX], int(match["code"]))
    lowered = text.lower()
    if "too many gaps" in lowered:
        kind = LossKind.FLOODED
    elif "timed out" in lowered:
        kind = LossKind.TIMED_OUT
    elif "reset" in lowered:
        kind = LossKind.RESET
    elif lowered == "closed":
        kind = LossKind.CLOSED_HERE
    else:
        kind = LossKind.ERROR
    return LossReason(kind, text[:TEXT_MAX])
