"""What the linked iroh can tell us natively, and what it cannot, found out by looking at it.

Owns: the table of wanted facts and where a binding might offer them; the versions the wheel was built from.
Not here: reading any value. A gap vanishes by itself when a later binding has one of the candidates; nobody
edits a list. Derived values (computed by us from other facts) leave the gap open, on purpose.
"""

import importlib.metadata
import inspect
import json
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

WANTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "RemoteInfo.conn_type": ("RemoteInfo.conn_type", "Endpoint.conn_type", "Connection.conn_type"),
        "RemoteInfo.latency_ms": ("RemoteInfo.latency_ms", "PathSnapshot.rtt_ms"),
        "RemoteInfo.last_used_ms": ("RemoteInfo.last_used_ms", "PathSnapshot.last_used_ms"),
        "RemoteInfo.last_received_ms": ("RemoteInfo.last_received_ms", "PathSnapshot.last_received_ms"),
        "TransportAddrInfo.source": ("TransportAddrInfo.source",),
        "RelayTunnel.status": ("RelayStatus.is_connected", "Endpoint.home_relay_status"),
        "RelayTunnel.last_send_at_ms": ("RelayStatus.last_send_at_ms", "RelayStatus.last_sent"),
        "RelayTunnel.last_recv_at_ms": ("RelayStatus.last_recv_at_ms", "RelayStatus.last_received"),
        "RelayTunnel.tx_bytes_total": ("RelayStatus.tx_bytes_total", "socket:send_relay"),
        "RelayTunnel.rx_bytes_total": ("RelayStatus.rx_bytes_total", "socket:recv_data_relay"),
        "RelayTunnel.last_error": ("RelayStatus.last_error",),
        "RelayTunnel.latency_ms": ("RelayStatus.latency_ms", "Endpoint.net_report"),
    }
)
"""Wanted field: native sources, best first. ``Class.member`` is looked up in the binding, ``group:name``
among the counters of an endpoint."""

_CRATES = ("iroh", "iroh-relay", "iroh-base", "noq", "noq-proto", "uniffi")


def api_gaps(binding: ModuleType, counters: Collection[str]) -> tuple[str, ...]:
    """Return the wanted fields without a native source, in the order of `WANTED`.

    ``counters`` are the keys of ``Endpoint.stats()``; empty before an endpoint exists.
    """
    return tuple(name for name in WANTED if native_source(name, binding=binding, counters=counters) is None)


def native_source(name: str, *, binding: ModuleType, counters: Collection[str]) -> str | None:
    """Return the first candidate for the wanted field ``name`` that exists, or None for a gap."""
    for candidate in WANTED[name]:
        if candidate in counters if ":" in candidate else _has_member(binding, candidate):
            return candidate
    return None


def _has_member(binding: ModuleType, candidate: str) -> bool:
    """Whether ``Class.member`` is a record field, a method or a property in ``binding``."""
    class_name, _, member = candidate.partition(".")
    cls = getattr(binding, class_name, None)
    if not inspect.isclass(cls):
        return False
    return member in _record_fields(cls) or hasattr(cls, member)


def _record_fields(cls: type) -> frozenset[str]:
    """The fields of a generated record: dataclasses without annotations, only ``__init__`` knows them."""
    try:
        parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]  # read, never called
    except (TypeError, ValueError):
        return frozenset()
    return frozenset(name for name in parameters if name != "self")


def linked_versions(distribution: str = "iroh") -> dict[str, str]:
    """Return what is really linked: ``wheel`` and the crate versions the wheel's bill of materials names.

    The wheel's own version says nothing about the crates, and the one version call of the native library
    answers for another crate. Without a readable bill of materials only ``wheel`` is there; without an
    installed distribution the answer is empty.
    """
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return {}
    versions = {"wheel": installed.version}
    for file in installed.files or ():
        if file.name.endswith(".cyclonedx.json"):
            versions.update(_crate_versions(Path(str(file.locate()))))
    return versions


class _Component(typing.TypedDict, total=False):
    name: str
    version: str


def _crate_versions(bill_of_materials: Path) -> dict[str, str]:
    """The versions of the crates that matter, or nothing when the file cannot be read."""
    try:
        components: list[_Component] = json.loads(bill_of_materials.read_text("utf-8"))["components"]
        named = {part["name"]: part["version"] for part in components}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {crate: named[crate] for crate in _CRATES if crate in named}
