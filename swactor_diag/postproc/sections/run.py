"""Section "Run": the run as a whole, from its manifest."""

from msgspec import UNSET, Struct, UnsetType

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import bullets, duration, inert, moment

TITLE = "Run"

_YES_NO = {True: "yes", False: "no", None: "unknown"}


class Rows(Struct, frozen=True, kw_only=True):
    """The facts of the run; None where the manifest does not say, UNSET where it is older than the fact."""

    nodes: int
    finalize_received: bool | None
    reason: str | UnsetType = UNSET
    start_ms: int | None = None
    end_ms: int | None = None
    dropped: int | UnsetType = UNSET
    set_aside: int | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET


def rows(run: Run) -> Rows:
    """Return the facts of ``run``."""
    manifest = run.manifest
    if manifest is None:
        return Rows(nodes=len(run.nodes), finalize_received=None)
    return Rows(
        nodes=len(manifest.nodes),
        finalize_received=manifest.finalize_received,
        reason=manifest.finalize_reason,
        start_ms=manifest.run_start_collector_ms,
        end_ms=manifest.run_end_collector_ms,
        dropped=UNSET if isinstance(manifest.drops, UnsetType) else sum(row.count for row in manifest.drops),
        set_aside=UNSET if isinstance(manifest.set_aside, UnsetType) else len(manifest.set_aside),
        schema_version=manifest.schema_version,
    )


def render(rows: Rows) -> str:
    """Return one line a fact; what nobody recorded is said to be so."""
    lines = [f"nodes: {rows.nodes}", f"finalize received: {_YES_NO[rows.finalize_received]}"]
    if rows.reason is not UNSET:
        lines.append(f"reason: {inert(rows.reason)}")
    lines += [
        f"{name}: {'not recorded' if at_ms is None else moment(at_ms) + ' UTC, collector clock'}"
        for name, at_ms in (("first record", rows.start_ms), ("last record", rows.end_ms))
    ]
    if rows.start_ms is not None and rows.end_ms is not None:
        lines.append(f"duration: {duration(max(0, rows.end_ms - rows.start_ms))}")
    dropped = (
        "no node reported on it" if rows.dropped is UNSET else f"{rows.dropped}, as far as nodes reported"
    )
    lines.append(f"records dropped: {dropped}")
    if rows.set_aside is not UNSET and rows.set_aside:
        lines.append(f"staged files set aside: {rows.set_aside} (named in MANIFEST.json)")
    version = "none, made by the original" if rows.schema_version is UNSET else str(rows.schema_version)
    lines.append(f"schema version: {version}")
    return bullets(lines)
