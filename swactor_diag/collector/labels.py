"""What a node of a run is called in its bundle.

Owns: the label rule of the format, including collisions and labels that could not be folder names.
Pure. Not here: where role and stage index come from (``bundle`` reads them from boot records).
"""

import re
from collections import Counter
from collections.abc import Mapping

import msgspec

from swactor_diag.schema.ids import short_id

_LABEL_LENGTH_MAX = 64
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_RESERVED = frozenset({"", ".", "..", "MANIFEST.json", "sim"})


class RoleFacts(msgspec.Struct, frozen=True):
    """What a boot record says of a node's part in the run; both None when there is none."""

    role: str | None = None
    stage_index: int | None = None


def read_role(boot: object) -> RoleFacts:
    """Return the role facts of a boot record's body, whatever it holds.

    The role is text, or as some old senders wrote it an object with key ``"0"`` or an array.
    """
    if not isinstance(boot, dict):
        return RoleFacts()
    role = boot.get("role")
    if isinstance(role, dict):
        role = role.get("0")
    elif isinstance(role, list):
        role = role[0] if role else None
    stage = boot.get("stage_index")
    return RoleFacts(
        role=role if isinstance(role, str) and role else None,
        stage_index=stage if isinstance(stage, int) and not isinstance(stage, bool) else None,
    )


def assign_labels(nodes: Mapping[str, RoleFacts]) -> dict[str, str]:
    """Return a label for every node id: unique, and fit to be a folder name."""
    wanted = {node_id: _wanted(node_id, facts) for node_id, facts in nodes.items()}
    for suffix_length in (8, 128):
        times = Counter(wanted.values())
        wanted = {
            node_id: label
            if times[label] == 1 and label not in _RESERVED
            else f"{_wanted(node_id, nodes[node_id])}-{node_id[:suffix_length]}"
            for node_id, label in wanted.items()
        }
    return wanted


def label_order(label: str) -> tuple[tuple[int, str], ...]:
    """Sorts labels as people do: ``stage-2`` before ``stage-10``."""
    parts = re.split(r"([0-9]+)", label)
    return tuple((int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts)


def _wanted(node_id: str, facts: RoleFacts) -> str:
    if facts.role is None:
        return f"node-{short_id(node_id)}"
    if facts.role == "stage" and facts.stage_index is not None:
        return f"stage-{facts.stage_index}"
    return _NOT_PLAIN.sub("_", facts.role)[:_LABEL_LENGTH_MAX]
