"""Who a process of a run is: the boot record, repeated as the header of every snapshot.

Owns: the fields of the identity and their order.
Not here: where the values come from (``swactor_diag.identity``).

An absent value is written as ``null``; a blank one is never written. Fields after ``home_relay_url_at_boot``
are additions to the original format.
"""

from typing import Annotated

from msgspec import Meta, Struct

SCHEMA_VERSION = 1
"""Raised when a reader of the previous version could misunderstand a record; additions do not raise it."""


class Identity(Struct, frozen=True, kw_only=True):
    """One process of a run, from its start to its end."""

    node_id_hex: str
    node_id_short: str
    role: Annotated[str, Meta(description="orchestrator, stage, relay, or a role of the application.")]
    stage_index: int | None = None
    stage_count: int | None = None
    run_id: str
    vastai_contract_id: str | None = None
    host_ip_public: str | None = None
    host_country: str | None = None
    datacenter_id: str | None = None
    hostname: str | None = None
    container_id: str | None = None
    process_start_unix_ms: Annotated[
        int, Meta(description="When its diagnostics started, by its own clock; the process may be older.")
    ]
    boot_sequence: int = 0
    binary_version: str | None = None
    git_sha: str | None = None
    iroh_version: str | None = None
    home_relay_url_at_boot: str | None = None
    boot_id: Annotated[str | None, Meta(description="Unique per process start; names batches.")] = None
    schema_version: int | None = None
    swactor_version: str | None = None
    python_version: str | None = None
    os_version: str | None = None
    pid: int | None = None
