"""Scenarios: a good file becomes frozen values, a bad one names file, field and rule."""

from pathlib import Path

import pytest

from sim.errors import ScenarioError
from sim.network import Edge
from sim.scenario import Cut, NodeKill, filled, load, load_named, parse

GOOD = """
name = "small"
duration_s = 10

[network]
latency_ms = 1.5
jitter_ms = 0

[[node]]
name = "left"
role = "stage"
boot = "package.module:boot"
config = { peer = "{node_id:right}", stages = 2 }

[[node]]
name = "right"
role = "stage"
boot = "package.module:boot"

[[fault]]
kind = "cut"
at_s = 2
source = "left"
target = "right"
for_s = 1

[[fault]]
kind = "node_kill"
at_s = 5
node = "left"
"""


def test_a_good_scenario_is_read() -> None:
    scenario = parse(GOOD, file="small.toml")

    assert scenario.names() == ("collector", "relay", "left", "right")
    assert scenario.network.edge() == Edge(base_ns=1_500_000, jitter_ns=0)
    assert scenario.fault == (
        Cut(at_s=2, source="left", target="right", for_s=1),
        NodeKill(at_s=5, node="left"),
    )


@pytest.mark.parametrize(
    ("old", "new", "field", "rule"),
    [
        ("duration_s = 10", 'duration_s = "long"', "duration_s", "Expected `float`"),
        ("duration_s = 10", "duration_s = 0", "duration_s", "> 0"),
        ("duration_s = 10", "duration = 10", "file", "duration"),
        ('name = "left"', 'name = "Left Side"', "node[0].name", "matching regex"),
        ('boot = "package.module:boot"', 'boot = "package.module"', "node[0].boot", "matching regex"),
        ('kind = "node_kill"', 'kind = "earthquake"', "fault[1].kind", "earthquake"),
        ('node = "left"', 'node = "middle"', "fault[1].node", "no host 'middle'"),
        ("at_s = 5", "at_s = 50", "fault[1].at_s", "after the end"),
        ('name = "right"', 'name = "left"', "node[0].name", "twice"),
        ("[network]", "[network", "file", "not TOML"),
        ("latency_ms = 1.5", "latency_ms = -1", "network.latency_ms", ">= 0"),
        ("latency_ms = 1.5", "latency_ms = inf", "network.latency_ms", "<= 86400000"),
        ("duration_s = 10", "duration_s = 10\nepoch_ms = 9999999999999999999", "epoch_ms", "<= "),
        ('name = "left"', 'name = "left"\nstart_s = inf', "node[0].start_s", "<= 86400"),
        ('name = "left"', 'name = "left"\nstart_s = 11', "node[0].start_s", "after the end"),
        ("{node_id:right}", "{node_id:middle}", "node[0].config", "{node_id:middle} is no node here"),
        ('target = "right"', 'target = "left"', "fault[0].target", "is the source itself"),
        ("[[fault]]", '[relay]\nname = "collector"\n[[fault]]', "relay.name", "is the collector's"),
        (
            "[[fault]]",
            '[[link]]\nsource = "left"\ntarget = "right"\n' * 2 + "[[fault]]",
            "link[1]",
            "left to right is there twice",
        ),
        (
            'kind = "node_kill"',
            'kind = "child_kill"\nprogram = "wurker"',
            "fault[1].program",
            "there is no program 'wurker' here",
        ),
    ],
)
def test_a_bad_scenario_names_file_field_and_rule(old: str, new: str, field: str, rule: str) -> None:
    assert old in GOOD

    with pytest.raises(ScenarioError) as caught:
        parse(GOOD.replace(old, new, 1), file="small.toml")

    assert (caught.value.file, caught.value.field) == ("small.toml", field)
    assert rule in caught.value.rule


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"missing\.toml: file: No such file"):
        load(tmp_path / "missing.toml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "wide.toml").write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(ScenarioError, match=r"wide\.toml: file: is not UTF-8: .* at byte 0"):
        load(tmp_path / "wide.toml")


@pytest.mark.parametrize("source", ["def (:\n", "1/0\n", "raise SystemExit(3)\n"])
def test_a_module_that_cannot_be_imported_is_the_scenarios_error(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ScenarioError, match=r"node\[0\].boot: broken_module:boot cannot be loaded: (\w+Error|SystemExit)"
    ):
        load_named("broken_module:boot", file="small.toml", field="node[0].boot")


@pytest.mark.parametrize("path", ["no.such.module:boot", "sim.scenario:no_such_name", "sim.loop:NS_PER_S"])
def test_a_dotted_path_that_names_no_function_is_refused(path: str) -> None:
    with pytest.raises(ScenarioError, match=r"small\.toml: node\[0\].boot"):
        load_named(path, file="small.toml", field="node[0].boot")


def test_words_are_filled_in_at_any_depth() -> None:
    value = {"a": ["{run_id}/{other}", 3], "b": {"c": "{node_id:left}"}}

    assert filled(value, {"run_id": "r", "node_id:left": "00"}) == {"a": ["r/{other}", 3], "b": {"c": "00"}}
