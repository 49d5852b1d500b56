"""The OpenAPI description of a collector, generated from its endpoints.

Owns: the form of the description. Not here: what it says (``endpoints``).
"""

import re
from collections.abc import Mapping

import msgspec

from swactor_diag.collector.endpoints import ENDPOINTS, Endpoint, ErrorAnswer, Name
from swactor_diag.schema.boot import SCHEMA_VERSION
from swactor_diag.schema.submission import RecordKind

_REFERENCE = "#/components/schemas/{name}"
_ID = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}
_SUBMIT_HEADERS = (
    ("x-run-id", True, _ID, "Run that the record belongs to."),
    ("x-node-id", True, _ID, "Sender; 64 hex digits by convention."),
    ("x-batch-id", False, _ID, "<boot>-<kind>-<number>; a repeat with equal bytes changes nothing."),
    ("x-node-send-ms", False, {"type": "integer", "minimum": 0}, "Wall clock of the sender."),
    ("Content-Encoding", False, {"enum": ["identity", "gzip", "zstd"]}, "How the body is packed."),
)


def describe() -> dict[str, object]:
    """Return the description as a JSON object."""
    answers = [endpoint.answer for endpoint in ENDPOINTS if endpoint.answer is not None]
    schemas, components = msgspec.json.schema_components([*answers, ErrorAnswer], ref_template=_REFERENCE)
    by_type = dict(zip(map(repr, answers), schemas, strict=False))
    paths: dict[str, dict[str, object]] = {}
    for endpoint in ENDPOINTS:
        schema = by_type.get(repr(endpoint.answer), {"type": "string", "format": "binary"})
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "swactor collector", "version": str(SCHEMA_VERSION)},
        "paths": paths,
        "components": {
            "schemas": dict(components),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schema: Mapping[str, object]) -> dict[str, object]:
    error = {"application/json": {"schema": {"$ref": _REFERENCE.format(name=ErrorAnswer.__name__)}}}
    responses: dict[str, object] = {
        "200": {"description": "Done.", "content": {endpoint.content: {"schema": schema}}}
    }
    if endpoint.name is Name.BUNDLE:
        responses["206"] = {"description": "A part of it.", "content": {endpoint.content: {"schema": schema}}}
        responses["304"] = {"description": "The reader has it already."}
    responses |= {
        str(status): {"description": "Not done.", "content": error} for status in sorted(set(endpoint.errors))
    }
    operation: dict[str, object] = {
        "operationId": endpoint.name.value,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": responses,
    }
    if endpoint.right is not None:
        operation["security"] = [{"bearer": []}]
    if endpoint.name is Name.SUBMIT:
        operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, object]]:
    kinds = {"enum": [kind.value for kind in RecordKind]}
    found: list[dict[str, object]] = [
        {"name": name, "in": "path", "required": True, "schema": kinds if name == "kind" else _ID}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    for name, is_required, schema, what in _SUBMIT_HEADERS if endpoint.name is Name.SUBMIT else ():
        found.append(
            {"name": name, "in": "header", "required": is_required, "schema": schema, "description": what}
        )
    return found
