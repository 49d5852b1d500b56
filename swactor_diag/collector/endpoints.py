"""What a collector can be asked over HTTP: the one list that routes, rights and the description follow.

Owns: paths, who may ask, what is answered. Not here: answering (``routes``), how the description is written
(``openapi``).
"""

import enum
from typing import Any

import msgspec

from swactor_diag.collector.access import Right
from swactor_diag.collector.retention import Trim
from swactor_diag.collector.run_index import RunCounts
from swactor_diag.schema.manifest import Manifest
from swactor_diag.schema.submission import SubmitAnswer


class Name(enum.StrEnum):
    """What an endpoint is called, in code, description and metrics alike."""

    SUBMIT = "submit"
    BUNDLE = "bundle"
    RUNS = "runs"
    RUN = "run"
    STREAM = "stream"
    TRIMS = "trims"
    PIN = "pin"
    UNPIN = "unpin"
    HEALTH = "health"
    METRICS = "metrics"
    OPENAPI = "openapi"


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not done. ``code`` is one word for programs."""

    error: str
    code: str


class HealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``degraded``: served, and something needs a look."""

    status: str
    files_set_aside: int
    storage: str = "ok"
    """What the storage said last, when it could not store a record."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked."""

    name: Name
    method: str
    path: str
    summary: str
    right: Right | None
    answer: object = None
    """Type of a JSON answer; None for others, whose kind is ``content``."""
    content: str = "application/json"
    errors: tuple[int, ...] = ()


_READ = (401, 403)

SUBMIT = Endpoint(
    name=Name.SUBMIT,
    method="POST",
    path="/diag/{kind}",
    summary="Store one record: boot, events, snapshot or finalize.",
    right=Right.INGEST,
    answer=SubmitAnswer,
    errors=(400, 401, 403, 404, 408, 413, 415, 422, 429, 503, 507),
)

ENDPOINTS = (
    SUBMIT,
    Endpoint(
        name=Name.BUNDLE,
        method="GET",
        path="/diag/bundle/{run_id}",
        summary="The archive of a run as it is at this moment.",
        right=Right.READ,
        content="application/gzip",
        errors=(400, *_READ, 404, 416, 503),
    ),
    Endpoint(
        name=Name.RUNS,
        method="GET",
        path="/diag/runs",
        summary="Every stored run with its nodes and counts.",
        right=Right.READ,
        answer=tuple[RunCounts, ...],
        errors=(*_READ, 503),
    ),
    Endpoint(
        name=Name.RUN,
        method="GET",
        path="/diag/runs/{run_id}",
        summary="One run: nodes, when each was last seen, gaps, counts. The manifest without its files.",
        right=Right.READ,
        answer=Manifest,
        errors=(400, *_READ, 404, 503),
    ),
    Endpoint(
        name=Name.STREAM,
        method="GET",
        path="/diag/stream/{run_id}",
        summary="The records of a run as they come, as server-sent events.",
        right=Right.READ,
        content="text/event-stream",
        errors=(400, *_READ, 503),
    ),
    Endpoint(
        name=Name.TRIMS,
        method="GET",
        path="/diag/trims",
        summary="Which runs were removed, when and why.",
        right=Right.READ,
        answer=list[Trim],
        errors=(*_READ, 503),
    ),
    Endpoint(
        name=Name.PIN,
        method="PUT",
        path="/diag/runs/{run_id}/pin",
        summary="Keep a run whatever its age.",
        right=Right.READ,
        answer=dict[str, bool],
        errors=(400, *_READ, 404, 503, 507),
    ),
    Endpoint(
        name=Name.UNPIN,
        method="DELETE",
        path="/diag/runs/{run_id}/pin",
        summary="Treat a run by its age again.",
        right=Right.READ,
        answer=dict[str, bool],
        errors=(400, *_READ, 503),
    ),
    Endpoint(
        name=Name.HEALTH,
        method="GET",
        path="/healthz",
        summary="Whether the collector serves, and whether something needs a look.",
        right=None,
        answer=HealthAnswer,
    ),
    Endpoint(
        name=Name.METRICS,
        method="GET",
        path="/metrics",
        summary="Figures for Prometheus.",
        right=Right.READ,
        content="text/plain",
        errors=_READ,
    ),
    Endpoint(
        name=Name.OPENAPI,
        method="GET",
        path="/openapi.json",
        summary="This description.",
        right=None,
        answer=dict[str, Any],
    ),
)
