"""Everything a bundle may contain, listed once; the JSON Schema is derived from it.

Owns: which event types and which body blocks have a declaration, by their names on the wire.
Not here: the declarations. A type that an application declares is added by the application to nothing:
its records are kept as unknown events by readers that do not know it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast, get_args

import msgspec

import swactor
from swactor import Event
from swactor.cluster import events as cluster_events
from swactor.relay import events as relay_events
from swactor_diag.schema import events as own_events
from swactor_diag.schema.boot import SCHEMA_VERSION, Identity
from swactor_diag.schema.manifest import Manifest
from swactor_diag.schema.snapshot import Body, SnapshotEnvelope
from swactor_process import events as process_events

_MODULES = (swactor, own_events, cluster_events, relay_events, process_events)


def _declared_events() -> dict[str, type[Event]]:
    found = [
        value
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Event) and value is not Event
    ]
    return {event.__name__: event for event in found}


def _present(annotation: object) -> type[object]:
    """The type of a field that is there: ``X | UnsetType`` without the second half."""
    arms = [arm for arm in get_args(annotation) if arm is not msgspec.UnsetType]
    present = arms[0] if msgspec.UnsetType in get_args(annotation) else annotation
    return cast("type[object]", present)  # or a union of such, which passes for one all the same


EVENTS: Mapping[str, type[Event]] = MappingProxyType(_declared_events())
"""Event type by its name in the ``type`` field."""

BLOCKS: Mapping[str, type[object]] = MappingProxyType(
    {field.name: _present(field.type) for field in msgspec.structs.fields(Body) if field.name != "others"}
)
"""Type of a body block by its key."""


def _any_value(annotation: object) -> dict[str, object]:
    """Plain ``object`` is what an application puts there: any JSON value."""
    if annotation is not object:
        raise NotImplementedError
    return {"description": "Any JSON value."}


def json_schema() -> dict[str, object]:
    """Return one JSON Schema document: every record in ``$defs``, names in ``x-events`` and ``x-blocks``."""
    roots = [Identity, SnapshotEnvelope, Body, Manifest, *EVENTS.values()]
    _, components = msgspec.json.schema_components(
        roots, schema_hook=_any_value, ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "swactor bundle records",
        "version": SCHEMA_VERSION,
        "x-events": sorted(EVENTS),
        "x-blocks": sorted(BLOCKS),
        "$defs": components,
    }
