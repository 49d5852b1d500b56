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


@pytest.mark.parametrize("path", ["no.such.module:boot", "sim.scenario:no_such_name", "sim.loop:NS_PER_S"])
def test_a_dotted_path_that_names_no_function_is_refused(path: str) -> None:
    with pytest.raises(ScenarioError, match=r"small\.toml: node\[0\].boot"):
        load_named(path, file="small.toml", field="node[0].boot")


def test_words_are_filled_in_at_any_depth() -> None:
    value = {"a": ["{run_id}/{other}", 3], "b": {"c": "{node_id:left}"}}

    assert filled(value, {"run_id": "r", "node_id:left": "00"}) == {"a": ["r/{other}", 3], "b": {"c": "00"}}
