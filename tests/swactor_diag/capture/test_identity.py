"""Who a process is: from its environment, never blank, never guessed."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from swactor import SystemClock, SystemRandom
from swactor.cluster.transport.iroh import IrohTransport
from swactor_diag.identity import (
    MachineFacts,
    RentalFacts,
    StageError,
    identity_from_env,
    machine_facts,
    new_boot_id,
)
from swactor_diag.installed import checked_out_commit, installed_commit, installed_version
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.catalog import json_schema
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


def linked_crate(name: str) -> str:
    """The version of a crate by the bill of materials in the installed wheel."""
    (bill,) = [file for file in distribution("iroh").files or () if file.name.endswith(".cyclonedx.json")]
    components = json.loads(Path(str(bill.locate())).read_text("utf-8"))["components"]
    return str(next(part["version"] for part in components if part["name"] == name))


def test_every_version_in_a_boot_record_is_that_of_what_is_installed_and_linked() -> None:
    transport = IrohTransport(b"\x07" * 32, relay_url=None, alpn=b"test", clock=SystemClock())
    made = identity_from_env(
        {},
        NODE,
        clock=SystemClock(),
        boot_id="b1",
        machine=machine_facts(pid=1),
        iroh_version=dict(transport.facts().versions)["iroh"],
    )
    truth: dict[str, object] = {
        "binary_version": version("swactor"),
        "swactor_version": version("swactor"),
        "iroh_version": linked_crate("iroh"),
        "python_version": sys.version.split(" ")[0],
        "os_version": f"{os.uname().sysname} {os.uname().release}",
        "schema_version": json_schema()["version"],
    }
    # A new version field is compared too, or this fails.
    assert {name for name in Identity.__struct_fields__ if "version" in name} == set(truth)
    assert {name: getattr(made, name) for name in truth} == truth
    assert made.iroh_version != version("iroh")


def test_the_commit_of_an_editable_installation_is_what_is_checked_out(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run([*git, "init", "-q"], check=True)
    assert checked_out_commit(tmp_path) is None
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "--detach", tmp_path / "tree"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "-b", "other", tmp_path / "branch"], check=True)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    folders = (tmp_path, tmp_path / "tree", tmp_path / "branch")
    assert [checked_out_commit(folder) for folder in folders] == [head] * 3
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    assert [checked_out_commit(folder) for folder in folders] == [head] * 3
    assert checked_out_commit(tmp_path / "nowhere") is None


def install(folder: Path, direct_url: str) -> None:
    info = folder / "made_up-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.2\n")
    (info / "direct_url.json").write_text(direct_url)


@pytest.mark.parametrize(
    ("direct_url", "commit"),
    [
        (f'{{"url": "https://x/y.git", "vcs_info": {{"vcs": "git", "commit_id": "{"a" * 40}"}}}}', "a" * 40),
        ('{"url": "https://x/y.git", "vcs_info": {"vcs": "git", "commit_id": "main"}}', None),
        ('{"url": "file:///somewhere", "dir_info": {}}', None),
        ("not json", None),
    ],
)
def test_the_commit_of_an_installation_is_the_recorded_one_or_absent(
    direct_url: str, commit: str | None, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, direct_url)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_version("made-up") == "1.2"
    assert installed_commit("made-up") == commit


def test_what_the_installation_says_wins_over_the_variable_and_an_image_can_say_it() -> None:
    said = {"SWACTOR_DIAG_GIT_SHA": "abc123"}
    for facts, sha in ((MachineFacts(git_sha="f" * 40), "f" * 40), (MachineFacts(), "abc123")):
        made = identity_from_env(said, NODE, clock=SystemClock(), boot_id="b1", machine=facts)
        assert made.git_sha == sha
    assert installed_commit("no-such-distribution") is None
    assert installed_version("no-such-distribution") is None


RENTAL = RentalFacts(contract_id="39012", public_ip="203.0.113.7", country="NO", datacenter_id="dc-4")


def test_what_a_launcher_passes_on_about_a_rental_is_in_the_boot_record() -> None:
    there = identity(**RENTAL.environ())
    assert (there.vastai_contract_id, there.host_ip_public) == ("39012", "203.0.113.7")
    assert (there.host_country, there.datacenter_id) == ("NO", "dc-4")


@pytest.mark.parametrize("name", RENTAL.__struct_fields__)
def test_a_rental_with_a_blank_fact_cannot_be_passed_on(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        structs.replace(RENTAL, **{name: " "})


def test_on_a_rented_machine_nobody_told_anything_the_provider_itself_says_which_it_is() -> None:
    there = identity(VAST_CONTAINERLABEL="C.39012", PUBLIC_IPADDR="203.0.113.7")
    assert (there.vastai_contract_id, there.host_ip_public) == ("39012", "203.0.113.7")
    at_home = identity(PUBLIC_IPADDR="203.0.113.7", VAST_CONTAINERLABEL="")
    assert (at_home.vastai_contract_id, at_home.host_ip_public) == (None, None)


def test_no_field_is_ever_blank() -> None:
    names = (
        "SWACTOR_DIAG_RUN_ID",
        "SWACTOR_DIAG_NODE_ROLE",
        "SWACTOR_DIAG_STAGE_INDEX",
        "SWACTOR_DIAG_STAGE_COUNT",
        "SWACTOR_DIAG_GIT_SHA",
        "SWACTOR_DIAG_RELAY_LABEL",
        "SWACTOR_IROH_RELAY_URL",
        "HOSTNAME",
        "CONTAINER_ID",
        "VAST_CONTAINERLABEL",
        "PUBLIC_IPADDR",
        *RENTAL.environ(),
    )
    made = identity(**dict.fromkeys(names, "  "))
    assert "" not in structs.asdict(made).values()
    assert made == structs.replace(identity(), process_start_unix_ms=made.process_start_unix_ms)


def test_what_is_no_text_is_replaced_so_that_the_record_can_be_written() -> None:
    no_text = os.fsdecode(b"caf\xe9")
    given = identity_from_env({"HOSTNAME": no_text}, NODE, clock=SystemClock(), boot_id="b1", role=no_text)
    assert (given.role, given.hostname) == ("caf�", "caf�")
    assert "caf�".encode() in msgspec.json.encode(given)


def test_the_relay_that_a_node_was_told_of_is_in_its_boot_record() -> None:
    assert identity(SWACTOR_IROH_RELAY_URL="http://r:7843").home_relay_url_at_boot == "http://r:7843"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://relay:7843/", "http://relay:7843/"),
        ("https://me:pw@relay:7843/x?token=abc#def", "https://***@relay:7843/x?***"),
        ("https://me:p/w?@relay/", "https://***@relay/"),
        ("me:pw@relay", "***@relay"),
    ],
)
def test_what_may_be_secret_in_the_address_of_a_relay_is_not_recorded(url: str, shown: str) -> None:
    assert identity(SWACTOR_IROH_RELAY_URL=url).home_relay_url_at_boot == shown


@pytest.mark.parametrize(
    "environ",
    [
        {"SWACTOR_DIAG_STAGE_INDEX": "1"},
        {"SWACTOR_DIAG_STAGE_INDEX": "one", "SWACTOR_DIAG_STAGE_COUNT": "3"},
    ],
)
def test_half_a_stage_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(StageError, match="belong together"):
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
