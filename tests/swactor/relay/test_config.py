"""Settings of a relay: what is refused, and what never shows."""

import hashlib
import re
from pathlib import Path

import pytest

from swactor.relay import RelayConfig, RelayConfigError, relay_node_id
from swactor.relay.config import JOURNALED_SESSIONS_MAX

SECRET = "correct-horse"


def test_beyond_loopback_a_token_is_required() -> None:
    with pytest.raises(RelayConfigError) as refused:
        RelayConfig(host="10.0.0.7")

    assert refused.value.field == "token"
    assert RelayConfig(host="10.0.0.7", token=SECRET).token == SECRET


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert RelayConfig(host=host).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_wildcard_address_must_say_how_nodes_reach_it(host: str) -> None:
    with pytest.raises(RelayConfigError) as refused:
        RelayConfig(host=host, token=SECRET)

    assert refused.value.field == "advertised_url"
    config = RelayConfig(host=host, token=SECRET, advertised_url="http://relay.example:41234/")
    assert config.url_for(7843) == "http://relay.example:41234/"


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("port", {"port": 65536}),
        ("token", {"token": "short"}),
        ("admin_token", {"admin_token": "with space in it"}),
        ("read_token", {"read_token": "ünïcödé-token"}),
        ("queue_frames_max", {"queue_frames_max": 0}),
        ("ping_period_s", {"ping_period_s": -1.0}),
        ("ping_jitter_s", {"ping_jitter_s": -0.1}),
        ("write_timeout_s", {"write_timeout_s": float("nan")}),
        ("advertised_url", {"advertised_url": "relay.example:80"}),
        ("sessions_max", {"sessions_max": JOURNALED_SESSIONS_MAX + 1, "journal_file": Path("journal")}),
    ],
)
def test_a_setting_out_of_range_is_named(field: str, settings: dict[str, object]) -> None:
    with pytest.raises(RelayConfigError) as refused:
        RelayConfig(**settings)  # type: ignore[arg-type]  # settings of several types

    assert refused.value.field == field


def test_tokens_do_not_show_in_repr_or_errors() -> None:
    config = RelayConfig(token=SECRET, read_token=SECRET + "r", admin_token=SECRET + "a")

    assert SECRET not in repr(config)
    assert SECRET not in str(config)
    with pytest.raises(RelayConfigError) as refused:
        RelayConfig(token="tiny")
    assert "tiny" not in str(refused.value)


def test_an_ipv6_address_is_bracketed_in_the_url() -> None:
    assert RelayConfig(host="::1").url_for(80) == "http://[::1]:80/"


def test_a_relay_id_is_the_hash_of_its_url() -> None:
    url = "http://relay.example:7843/"

    assert relay_node_id(url) == hashlib.sha256(url.encode()).hexdigest()
    assert re.fullmatch(r"[0-9a-f]{64}", relay_node_id(url))
    assert relay_node_id(url) != relay_node_id("http://relay.example:7844/")
