"""What a provider says about its machine, without what nobody must see."""

from msgspec import UNSET

from swactor.abc import Clock
from swactor_diag.introspect.rental import RentalIntrospector


def test_a_rented_machine(clock: Clock) -> None:
    environ = {
        "CONTAINER_ID": "37777190",
        "VAST_TCP_PORT_22": "40022",
        "CUDA_VERSION": "12.4",
        "VAST_EMPTY": "  ",
        "HOME": "/root",
        "PUBLIC_URL": "x",
    }
    block = RentalIntrospector(environ, clock=clock, hostname="abc").observe()
    assert block is not None
    assert (block.container_id, block.hostname) == ("37777190", "abc")
    assert block.env_vars == (
        ("CONTAINER_ID", "37777190"),
        ("CUDA_VERSION", "12.4"),
        ("VAST_TCP_PORT_22", "40022"),
    )
    assert block.process_start_ms == clock.wall_ms()


def test_what_may_be_a_secret_is_not_shown(clock: Clock) -> None:
    secrets = (
        "CONTAINER_API_KEY",
        "VAST_TOKEN",
        "VASTAI_SECRET",
        "VAST_password",
        "CUDA_PASSPHRASE",
        "VAST_AUTH",
        "VAST_PWD",
        "CONTAINER_CREDS",
        "CONTAINER_JWT",
        "VAST_COOKIE",
        "NVIDIA_BEARER",
    )
    environ = dict.fromkeys(secrets, "hunter2") | {"VAST_URL": "http://me:hunter2@host/"}
    block = RentalIntrospector(environ, clock=clock).observe()
    assert block is not None
    assert block.env_vars == (("VAST_URL", "http://***@host/"),)


def test_values_and_their_number_are_bounded(clock: Clock) -> None:
    environ = {f"VAST_{number:03}": "x" * 10_000 for number in range(1_000)}
    block = RentalIntrospector(environ, clock=clock).observe()
    assert block is not None
    assert len(block.env_vars) == 64
    assert all(len(value) <= 260 for _, value in block.env_vars)


def test_on_a_machine_that_nobody_rented_out_there_is_no_block(clock: Clock) -> None:
    assert RentalIntrospector({"CUDA_VERSION": "12.4", "HOME": "/"}, clock=clock).observe() is None
    block = RentalIntrospector({"VAST_REGION": "EU"}, clock=clock).observe()
    assert block is not None
    assert block.container_id is UNSET
