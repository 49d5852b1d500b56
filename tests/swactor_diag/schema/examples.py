"""Records with something in every field, made from their declarations: nobody has to remember a new field.

Owns: what stands for a value of each type. Not here: what is done with the records.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import inspect

from swactor_diag.schema.boot import Identity
from swactor_diag.schema.catalog import BLOCKS, EVENTS
from swactor_diag.schema.manifest import Manifest

NODE = "ab" * 32


def boot() -> dict[str, Any]:
    """A boot record."""
    return {**_filled(Identity), "node_id_hex": NODE}


def events(*, required_only: bool = False) -> list[dict[str, Any]]:
    """One event of each type; with ``required_only``, as a writer that has nothing more to say."""
    return [
        {"node_id": NODE, "monotonic_seq": seq, "wall_ms": seq, **_filled(kind, required_only=required_only)}
        for seq, kind in enumerate(EVENTS.values(), start=1)
    ]


def snapshot() -> dict[str, Any]:
    """A snapshot with every block."""
    return {
        "identity": boot(),
        "run_id": "r",
        "snapshot_id": "abababab-0",
        "wall_ms": 5,
        "monotonic_seq": 3,
        "trigger": {"kind": "Transition", "data": "seq-3"},
        "body": {name: _filled(block) for name, block in BLOCKS.items()},
    }


def manifest() -> dict[str, Any]:
    """The contents list of a bundle."""
    return _filled(Manifest)  # type: ignore[no-any-return]  # a struct is filled as an object


def _filled(declared: object, *, required_only: bool = False) -> Any:
    return _value(inspect.type_info(declared), required_only=required_only)


def _value(kind: inspect.Type, *, required_only: bool) -> Any:
    match kind:
        case inspect.Metadata():
            value = _value(kind.type, required_only=required_only)
        case inspect.StructType():
            value = _object(kind, required_only=required_only)
        case inspect.UnionType():
            present = next(arm for arm in kind.types if not isinstance(arm, inspect.NoneType))
            value = _value(present, required_only=required_only)
        case inspect.EnumType():
            value = next(iter(kind.cls)).value
        case inspect.VarTupleType() | inspect.ListType():
            value = [_value(kind.item_type, required_only=required_only)]
        case inspect.TupleType():
            value = [_value(item, required_only=required_only) for item in kind.item_types]
        case inspect.DictType():
            value = {"key": _value(kind.value_type, required_only=required_only)}
        case _:
            value = SCALARS[type(kind)]
    return value


SCALARS: Mapping[type[inspect.Type], Any] = {
    inspect.BoolType: True,
    inspect.IntType: 7,
    inspect.FloatType: 1.5,
    inspect.StrType: "text",
    inspect.CustomType: {"any": [1, "x", None]},  # plain ``object``: any JSON value
}


def _object(kind: inspect.StructType, *, required_only: bool) -> dict[str, Any]:
    fields = [field for field in kind.fields if field.required or not required_only]
    filled = {field.encode_name: _value(field.type, required_only=required_only) for field in fields}
    return filled if kind.tag_field is None else {kind.tag_field: kind.tag, **filled}
