"""Old and new versions read each other: the rules of change, and each kept version of the schema beside ours.

``tests/fixtures/schema`` holds what `freeze` kept of each version: its records, its JSON Schema, its reader.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from swactor_diag.schema.catalog import json_schema

from . import examples

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "schema"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
ENVELOPE = {"node_id", "monotonic_seq", "wall_ms"}
NEVER_WRITTEN = "unrecognized"


def kept(version: str, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / version / f"{name}.json").read_text("utf-8"))
    return loaded


def read_by(path: Path, records: dict[str, Any]) -> dict[str, Any]:
    """What the schema package at ``path`` understands of ``records``, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", FIXTURES / "reader.py"],
        input=json.dumps(records),
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    understood: dict[str, Any] = json.loads(done.stdout)
    assert understood["schema"].startswith(str(path))
    return understood


def lost(written: Any, understood: Any, *, at: str) -> Iterator[str]:
    """Where ``understood`` lacks or changed what was ``written``."""
    if isinstance(written, dict) and isinstance(understood, dict):
        for key, value in written.items():
            if key not in understood:
                yield f"{at}.{key}"
            else:
                yield from lost(value, understood[key], at=f"{at}.{key}")
    elif isinstance(written, list) and isinstance(understood, list) and len(written) == len(understood):
        for index, value in enumerate(written):
            yield from lost(value, understood[index], at=f"{at}[{index}]")
    elif written != understood:
        yield at


def not_understood(records: dict[str, Any], understood: dict[str, Any]) -> list[str]:
    """Where ``understood`` lacks or changed what is in ``records``; events of unknown types are left out."""
    body = understood["snapshot"]["body"]
    snapshot = {**understood["snapshot"], "body": {**body, **body["others"]}}
    written = {key: records["snapshot"][key] for key in ("identity", "trigger", "body")}
    found = [
        *lost(records["boot"], understood["boot"], at="boot"),
        *lost(written, snapshot, at="snapshot"),
        *lost(records["manifest"], understood["manifest"], at="manifest"),
    ]
    for row, event in zip(records["events"], understood["events"], strict=True):
        if event is not None:
            fields = {key: value for key, value in row.items() if key not in ENVELOPE}
            found += lost(fields, event, at=row["type"])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_fc097_todays_reader_understands_everything_that_an_older_version_wrote(version: str) -> None:
    records = kept(version, "records")

    understood = read_by(ROOT, records)

    assert (understood["problems"], understood["unknown"]) == ([], [])
    assert not_understood(records, understood) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_fc097_an_older_reader_understands_all_that_we_write_but_our_additions(version: str) -> None:
    known = kept(version, "schema")
    records: dict[str, Any] = {
        "boot": examples.boot(),
        "events": [*examples.events(), *examples.events(required_only=True), TELEPORT],
        "snapshot": examples.snapshot(),
        "manifest": examples.manifest(),
    }
    records["snapshot"]["body"]["teleporter"] = {"range_m": 7}

    understood = read_by(FIXTURES / version / "reader.zip", records)

    assert understood["problems"] == []
    types = {event["type"] for event in records["events"]}
    assert set(understood["unknown"]) == types - set(known["x-events"])
    added = set(_fields(json_schema())) - set(_fields(known))
    names = {field for _, field in added}
    assert [at for at in not_understood(records, understood) if at.rsplit(".", 1)[-1] not in names] == []


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, shape in schema["$defs"].items():
        yield from ((name, field) for field in shape.get("properties", ()))


TELEPORT = {
    "node_id": examples.NODE,
    "monotonic_seq": 1,
    "wall_ms": 1,
    "type": "TeleportStarted",
    "to": "mars",
}


def breaches(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What in ``new`` breaks the rule that a schema only grows."""
    for names in ("x-events", "x-blocks"):
        yield from (f"{name} is gone" for name in old[names] if name not in new[names])
    for name, before in old["$defs"].items():
        after = new["$defs"].get(name, {})
        yield from (
            f"{name}: {value} is gone" for value in before.get("enum", ()) if value not in after["enum"]
        )
        if set(before.get("required", ())) != set(after.get("required", ())):
            yield f"{name}: other fields are required"
        for field, shape in before.get("properties", {}).items():
            if _type_of(shape) != _type_of(after.get("properties", {}).get(field)):
                yield f"{name}.{field} has another type or is gone"


def _type_of(shape: dict[str, Any] | None) -> object:
    """A field's shape without words about it and without its default."""
    return None if shape is None else {k: v for k, v in shape.items() if k not in {"description", "default"}}


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_an_older_version_was_taken_away_or_changed(version: str) -> None:
    assert list(breaches(kept(version, "schema"), json_schema())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["x-events"].remove("Custom"), "Custom is gone"),
        (
            lambda s: s["$defs"]["DropCount"]["properties"].pop("what"),
            "DropCount.what has another type or is gone",
        ),
        (
            lambda s: s["$defs"]["DropCount"]["properties"].update(count={"type": "string"}),
            "DropCount.count has another type or is gone",
        ),
        (lambda s: s["$defs"]["DropCount"]["required"].append("why"), "DropCount: other fields are required"),
        (lambda s: s["$defs"]["TriggerKind"]["enum"].remove("OnDemand"), "TriggerKind: OnDemand is gone"),
    ],
)
def test_each_rule_of_change_finds_its_breach(change: Any, said: str) -> None:
    changed = deepcopy(json_schema())
    change(changed)
    assert list(breaches(json_schema(), changed)) == [said]


def test_an_addition_is_no_breach() -> None:
    grown: dict[str, Any] = deepcopy(json_schema())
    grown["x-events"].append("TeleportStarted")
    grown["$defs"]["DropCount"]["properties"]["planet"] = {"type": "string"}
    grown["$defs"]["TriggerKind"]["enum"].append("Eclipse")
    assert list(breaches(json_schema(), grown)) == []


def test_every_enumeration_of_a_block_can_be_read_with_values_of_a_newer_version() -> None:
    defs: dict[str, Any] = json_schema()["$defs"]  # type: ignore[assignment]  # a JSON Schema has them
    closed = {
        name
        for name in _reachable(defs, "Body")
        if NEVER_WRITTEN not in defs[name].get("enum", [NEVER_WRITTEN])
    }
    assert closed == set()


def _reachable(defs: dict[str, Any], name: str) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += [part.split('"')[0] for part in json.dumps(defs[at]).split("#/$defs/")[1:]]
    return found
