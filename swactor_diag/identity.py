"""Who this process is, from its environment and from what is installed.

Owns: which variable fills which field of the boot record, the rule that blank means absent, and how a
launcher hands on what it knows of a rented machine. Pure but for asking what is installed (``installed``).
Not here: the record (``schema.boot``); the environment itself (it is given as a mapping).
"""

import platform
import re
from collections.abc import Mapping

import msgspec

from swactor.abc import Clock, RandomStream
from swactor_diag.installed import installed_commit, installed_version
from swactor_diag.readable import readable, readable_url, readable_variables
from swactor_diag.schema.boot import SCHEMA_VERSION, Identity
from swactor_diag.schema.ids import check_id, short_id

DEFAULT_RUN_ID = "pp-run"


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the machine knows; a simulation gives its own."""

    pid: int | None = None
    hostname: str | None = None
    python_version: str | None = None
    os_version: str | None = None
    git_sha: str | None = None


class RentalFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider said about a rented machine when the lease was made: all of it, or nothing.

    The machine itself cannot know all of this: whoever leased it passes `environ` to the container.

    Raises:
        ValueError: a fact is blank. A lease whose facts are not known yet is not ready to be used.
    """

    contract_id: str
    public_ip: str
    country: str
    datacenter_id: str

    def __post_init__(self) -> None:
        blank = [name for name in self.__struct_fields__ if not getattr(self, name).strip()]
        if blank:
            raise ValueError(f"facts of a rental must not be blank: {', '.join(blank)}")

    def environ(self) -> dict[str, str]:
        """Return the variables that a node on that machine has to be started with."""
        return {
            "SWACTOR_DIAG_VASTAI_CONTRACT_ID": self.contract_id,
            "SWACTOR_DIAG_HOST_IP_PUBLIC": self.public_ip,
            "SWACTOR_DIAG_HOST_COUNTRY": self.country,
            "SWACTOR_DIAG_DATACENTER_ID": self.datacenter_id,
        }


def machine_facts(*, pid: int | None = None, distribution: str = "swactor") -> MachineFacts:
    """Return the facts of the machine this runs on, and the commit that ``distribution`` is from."""
    return MachineFacts(
        pid=pid,
        hostname=readable(platform.node()) or None,
        python_version=platform.python_version(),
        os_version=f"{platform.system()} {platform.release()}",
        git_sha=installed_commit(distribution),
    )


def new_boot_id(random: RandomStream) -> str:
    """Return an id that no other process start has."""
    return random.token(8).hex()


class StageError(ValueError):
    """What the environment says about the stage of this node is half there, or is no number."""


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

    Arguments win over ``SWACTOR_DIAG_*`` variables; ``HOSTNAME`` wins over the machine's own name, and what
    the installation says about its commit wins over ``SWACTOR_DIAG_GIT_SHA``. On a machine of vast.ai the
    provider's own variables name contract and address when nobody passed them on: a node there never looks
    like one at home. Bytes that are no text are replaced, and what may
    be secret in the address of the relay.

    Raises:
        IdError: the run id or the node id cannot be used in paths.
        StageError: stage index and count are not both numbers, or only one of them is there.
    """
    env = {name: value.strip() for name, value in readable_variables(environ).items() if value.strip()}
    facts = machine or MachineFacts()
    stage_index, stage_count = _stage(env)
    rental = _rental_by_provider(env)
    role = readable(role or env.get("SWACTOR_DIAG_NODE_ROLE", "node"))
    relay_url = home_relay_url or env.get("SWACTOR_IROH_RELAY_URL")
    label = env.get("SWACTOR_DIAG_RELAY_LABEL") if role == "relay" else None
    return Identity(
        node_id_hex=check_id(node_id, what="node id"),
        node_id_short=short_id(node_id),
        role=role,
        stage_index=stage_index,
        stage_count=stage_count,
        run_id=check_id(run_id or env.get("SWACTOR_DIAG_RUN_ID", DEFAULT_RUN_ID), what="run id"),
        vastai_contract_id=env.get("SWACTOR_DIAG_VASTAI_CONTRACT_ID") or rental.get("contract_id"),
        host_ip_public=env.get("SWACTOR_DIAG_HOST_IP_PUBLIC") or rental.get("public_ip"),
        host_country=env.get("SWACTOR_DIAG_HOST_COUNTRY"),
        datacenter_id=env.get("SWACTOR_DIAG_DATACENTER_ID"),
        hostname=label or env.get("HOSTNAME") or facts.hostname,
        container_id=env.get("CONTAINER_ID"),
        process_start_unix_ms=clock.wall_ms(),
        binary_version=installed_version("swactor"),
        git_sha=facts.git_sha or env.get("SWACTOR_DIAG_GIT_SHA"),
        iroh_version=iroh_version or None,
        home_relay_url_at_boot=readable_url(relay_url) if relay_url else None,
        boot_id=check_id(boot_id, what="boot id"),
        schema_version=SCHEMA_VERSION,
        swactor_version=installed_version("swactor"),
        python_version=facts.python_version,
        os_version=facts.os_version,
        pid=facts.pid,
    )


def _rental_by_provider(env: Mapping[str, str]) -> dict[str, str]:
    """What vast.ai itself tells a container: its contract by a label ``C.<number>``, its public address."""
    label = re.fullmatch(r"C\.(?P<contract>[0-9]+)", env.get("VAST_CONTAINERLABEL", ""))
    if label is None:
        return {}
    address = env.get("PUBLIC_IPADDR")
    return {"contract_id": label["contract"]} | ({} if address is None else {"public_ip": address})


def _stage(env: Mapping[str, str]) -> tuple[int | None, int | None]:
    index, count = env.get("SWACTOR_DIAG_STAGE_INDEX"), env.get("SWACTOR_DIAG_STAGE_COUNT")
    if index is None and count is None:
        return None, None
    if index is None or count is None or not (index.isdecimal() and count.isdecimal()):
        raise StageError(
            "SWACTOR_DIAG_STAGE_INDEX and SWACTOR_DIAG_STAGE_COUNT belong together and are numbers, "
            f"not {index!r} and {count!r}"
        )
    return int(index), int(count)
