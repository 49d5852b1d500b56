"""Who this process is, from its environment and from what is installed.

Owns: which variable fills which field of the boot record, and the rule that blank means absent. Versions come
from the installed distributions, never from a literal. Pure but for reading those.
Not here: the record (``schema.boot``); the environment itself (it is given as a mapping).
"""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import msgspec

from swactor.abc import Clock, RandomStream
from swactor_diag.schema.boot import SCHEMA_VERSION, Identity
from swactor_diag.schema.ids import check_id, short_id

DEFAULT_RUN_ID = "pp-run"


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the machine knows; a simulation gives its own."""

    pid: int | None = None
    hostname: str | None = None
    python_version: str | None = None
    os_version: str | None = None


def machine_facts(*, pid: int | None = None) -> MachineFacts:
    """Return the facts of the machine this runs on."""
    return MachineFacts(
        pid=pid,
        hostname=platform.node() or None,
        python_version=platform.python_version(),
        os_version=f"{platform.system()} {platform.release()}",
    )


def new_boot_id(random: RandomStream) -> str:
    """Return an id that no other process start has."""
    return random.token(8).hex()


def identity_from_env(
    environ: Mapping[str, str],
    node_id: str,
    *,
    clock: Clock,
    boot_id: str,
    role: str | None = None,
    run_id: str | None = None,
    machine: MachineFacts | None = None,
    home_relay_url: str | None = None,
    iroh_version: str | None = None,
) -> Identity:
    """Return the identity of this process start.

    Arguments win over ``SWACTOR_DIAG_*`` variables; ``HOSTNAME`` wins over the machine's own name.

    Raises:
        IdError: the run id or the node id cannot be used in paths.
        ValueError: stage index and count are not both numbers, or only one of them is there.
    """
    env = {name: value.strip() for name, value in environ.items() if value.strip()}
    facts = machine or MachineFacts()
    stage_index, stage_count = _stage(env)
    role = role or env.get("SWACTOR_DIAG_NODE_ROLE", "node")
    label = env.get("SWACTOR_DIAG_RELAY_LABEL") if role == "relay" else None
    return Identity(
        node_id_hex=check_id(node_id, what="node id"),
        node_id_short=short_id(node_id),
        role=role,
        stage_index=stage_index,
        stage_count=stage_count,
        run_id=check_id(run_id or env.get("SWACTOR_DIAG_RUN_ID", DEFAULT_RUN_ID), what="run id"),
        vastai_contract_id=env.get("SWACTOR_DIAG_VASTAI_CONTRACT_ID"),
        host_ip_public=env.get("SWACTOR_DIAG_HOST_IP_PUBLIC"),
        host_country=env.get("SWACTOR_DIAG_HOST_COUNTRY"),
        datacenter_id=env.get("SWACTOR_DIAG_DATACENTER_ID"),
        hostname=label or env.get("HOSTNAME") or facts.hostname,
        container_id=env.get("CONTAINER_ID"),
        process_start_unix_ms=clock.wall_ms(),
        binary_version=installed_version("swactor"),
        git_sha=env.get("SWACTOR_DIAG_GIT_SHA"),
        iroh_version=iroh_version or None,
        home_relay_url_at_boot=home_relay_url or None,
        boot_id=check_id(boot_id, what="boot id"),
        schema_version=SCHEMA_VERSION,
        swactor_version=installed_version("swactor"),
        python_version=facts.python_version,
        os_version=facts.os_version,
        pid=facts.pid,
    )


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None when it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _stage(env: Mapping[str, str]) -> tuple[int | None, int | None]:
    index, count = env.get("SWACTOR_DIAG_STAGE_INDEX"), env.get("SWACTOR_DIAG_STAGE_COUNT")
    if index is None and count is None:
        return None, None
    if index is None or count is None or not (index.isdecimal() and count.isdecimal()):
        raise ValueError(
            "SWACTOR_DIAG_STAGE_INDEX and SWACTOR_DIAG_STAGE_COUNT belong together and are numbers, "
            f"not {index!r} and {count!r}"
        )
    return int(index), int(count)
