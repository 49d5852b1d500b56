"""Section "Hosts": on which machine each node ran, from its latest boot record."""

from msgspec import Struct

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import bullets, inert
from swactor_diag.schema.boot import Identity

TITLE = "Hosts"


class Row(Struct, frozen=True, kw_only=True):
    """One node of the manifest; ``identity`` is None when it left no boot record."""

    label: str
    identity: Identity | None


def rows(run: Run) -> tuple[Row, ...]:
    """Return a row for every node, in manifest order."""
    return tuple(Row(label=node.label, identity=node.identity) for node in run.nodes)


def render(rows: tuple[Row, ...]) -> str:
    """Return one line a node with all keys, ``?`` for what nobody recorded."""
    if not rows:
        return "No nodes, so no hosts: boot records would name them."
    return bullets(f"{inert(row.label)}: {_facts(row.identity)}" for row in rows)


def _facts(identity: Identity | None) -> str:
    if identity is None:
        return "no boot record"
    facts = {
        "rental": identity.vastai_contract_id,
        "ip": identity.host_ip_public,
        "dc": identity.datacenter_id,
        "country": identity.host_country,
        "container": identity.container_id,
        "hostname": identity.hostname,
        "relay": identity.home_relay_url_at_boot,
        "iroh": identity.iroh_version,
        "git": identity.git_sha,
    }
    return ", ".join(f"{key} {inert(value)}" for key, value in facts.items())
