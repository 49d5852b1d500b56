"""Who a process is: from its environment, never blank, never guessed."""

from importlib.metadata import version

import pytest

from swactor import SystemClock, SystemRandom
from swactor_diag.identity import MachineFacts, identity_from_env, machine_facts, new_boot_id
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.ids import IdError

NODE = "ab" * 32


def identity(**environ: str) -> Identity:
    return identity_from_env(environ, NODE, clock=SystemClock(), boot_id="b1")


def test_outside_a_provider_its_fields_are_absent() -> None:
    plain = identity()
    absent = (
        plain.vastai_contract_id,
        plain.host_ip_public,
        plain.host_country,
        plain.datacenter_id,
        plain.hostname,
        plain.container_id,
        plain.git_sha,
        plain.iroh_version,
        plain.home_relay_url_at_boot,
        plain.stage_index,
    )
    assert set(absent) == {None}
    assert (plain.run_id, plain.role, plain.node_id_short) == ("pp-run", "node", "abababab")


def test_what_was_forwarded_is_there_and_blank_counts_as_absent() -> None:
    full = identity(
        SWACTOR_DIAG_RUN_ID="run-7",
        SWACTOR_DIAG_NODE_ROLE="stage",
        SWACTOR_DIAG_STAGE_INDEX=" 2 ",
        SWACTOR_DIAG_STAGE_COUNT="3",
        SWACTOR_DIAG_VASTAI_CONTRACT_ID="39012",
        SWACTOR_DIAG_HOST_IP_PUBLIC="203.0.113.7",
        SWACTOR_DIAG_HOST_COUNTRY="   ",
        SWACTOR_DIAG_GIT_SHA="abc123",
        HOSTNAME="0123456789ab",
        CONTAINER_ID="c-1",
    )
    assert (full.run_id, full.role, full.stage_index, full.stage_count) == ("run-7", "stage", 2, 3)
    assert (full.vastai_contract_id, full.host_ip_public, full.host_country) == ("39012", "203.0.113.7", None)
    assert (full.git_sha, full.hostname, full.container_id) == ("abc123", "0123456789ab", "c-1")


def test_versions_come_from_what_is_installed() -> None:
    assert identity().swactor_version == version("swactor")
    assert identity().binary_version == version("swactor")


@pytest.mark.parametrize(
    "environ",
    [
        {"SWACTOR_DIAG_STAGE_INDEX": "1"},
        {"SWACTOR_DIAG_STAGE_INDEX": "one", "SWACTOR_DIAG_STAGE_COUNT": "3"},
    ],
)
def test_half_a_stage_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="belong together"):
        identity(**environ)


def test_fc048_a_run_id_that_is_a_path_is_refused() -> None:
    with pytest.raises(IdError):
        identity(SWACTOR_DIAG_RUN_ID="../etc")


def test_the_machines_facts_are_given_not_looked_up() -> None:
    facts = MachineFacts(pid=7, hostname="sim-1", python_version="3.11.0", os_version="Sim 1")
    made = identity_from_env({}, NODE, clock=SystemClock(), boot_id="b1", machine=facts)
    assert (made.pid, made.hostname, made.python_version, made.os_version) == (7, "sim-1", "3.11.0", "Sim 1")
    assert machine_facts(pid=1).python_version is not None


def test_fc047_two_boots_have_two_ids() -> None:
    random = SystemRandom().stream("boot")
    assert new_boot_id(random) != new_boot_id(random)
