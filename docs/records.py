"""The reference of every record, written from the JSON Schema that follows from the declarations.

Owns: how a record, its fields and their types read on a page. Not here: the page (``records.md``), the schema
(`swactor_diag.schema.catalog`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from swactor_diag.schema.catalog import BLOCKS, EVENTS, json_schema

_SCHEMA: Mapping[str, Any] = json_schema()
_DEFS: Mapping[str, Mapping[str, Any]] = _SCHEMA["$defs"]
_REF = "#/$defs/"


def schema_file() -> str:
    """Return the JSON Schema of everything, as it is kept beside the pages."""
    return json.dumps(_SCHEMA, indent=1, sort_keys=True) + "\n"


def boot() -> str:
    """Who a process is."""
    return _records(["Identity"])


def events() -> str:
    """Every event type."""
    return _records(sorted(EVENTS))


def snapshot() -> str:
    """The envelope of a snapshot, and its blocks by their keys in the body."""
    head = _records(["SnapshotEnvelope", "Trigger"])
    blocks = [f"### `{key}`\n\n{_type_of(_DEFS['Body']['properties'][key])}" for key in sorted(BLOCKS)]
    return "\n\n".join([head, *blocks])


def manifest() -> str:
    """The contents list of a bundle."""
    return _records(["Manifest"])


def parts() -> str:
    """Every record that lies inside another one, and every enumeration."""
    top = {"Identity", "Manifest", "SnapshotEnvelope", "Trigger", "Body", *EVENTS}
    return _records(sorted(set(_DEFS) - top))


def _records(names: Iterable[str]) -> str:
    return "\n\n".join(f"### {name}\n\n{_record(name)}" for name in names)


def _record(name: str) -> str:
    shape = _DEFS[name]
    said = [_inline(shape["description"])] if "description" in shape else []
    if "enum" in shape:
        said.append("One of " + ", ".join(f"`{value}`" for value in shape["enum"]) + ".")
    rows = list(_rows(shape))
    if rows:
        said.append("\n".join(["| field | type | | meaning |", "| --- | --- | --- | --- |", *rows]))
    return "\n\n".join(said)


def _rows(shape: Mapping[str, Any]) -> Iterator[str]:
    required = shape.get("required", ())
    for field, inside in shape.get("properties", {}).items():
        if field == "type":
            continue  # the name of the event itself
        need = "always" if field in required else ""
        yield f"| `{field}` | {_type_of(inside)} | {need} | {_inline(inside.get('description', ''))} |"


def _type_of(shape: Mapping[str, Any]) -> str:
    if "anyOf" in shape:
        return " or ".join(_type_of(arm) for arm in shape["anyOf"])
    match shape:
        case {"$ref": str(target)}:
            name = target.removeprefix(_REF)
            said = f"[{name}](#{name.lower()})"
        case {"type": "array", "prefixItems": items}:
            said = "[" + ", ".join(_type_of(item) for item in items) + "]"
        case {"type": "array", "items": item}:
            said = f"array of {_type_of(item)}"
        case {"type": "object", "additionalProperties": value}:
            said = f"object of {_type_of(value)}"
        case _:
            said = str(shape.get("type", "any"))
    return said


def _inline(text: str) -> str:
    """One line that is inert in a table, with the pages' own quotes."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|").replace("<", "&lt;")
