"""What nodes are called."""

import pytest

from swactor_diag.collector.labels import RoleFacts, assign_labels, label_order, read_role

A = "a1b2c3d4" * 8
B = "ffb2c3d4" * 8


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        (RoleFacts("stage", 0), "stage-0"),
        (RoleFacts("stage", None), "stage"),
        (RoleFacts("orchestrator", 3), "orchestrator"),
        (RoleFacts(None, None), "node-a1b2c3d4"),
        (RoleFacts("../up", None), ".._up"),
        (RoleFacts("a/b|c\n", None), "a_b_c_"),
        (RoleFacts("..", None), "..-a1b2c3d4"),
        (RoleFacts("sim", None), "sim-a1b2c3d4"),
        (RoleFacts("MANIFEST.json", None), "MANIFEST.json-a1b2c3d4"),
        (RoleFacts("x" * 500, None), "x" * 64),
    ],
)
def test_the_label_of_one_node(facts: RoleFacts, label: str) -> None:
    assert assign_labels({A: facts}) == {A: label}


def test_equal_labels_all_get_their_short_id() -> None:
    labels = assign_labels({A: RoleFacts("orchestrator"), B: RoleFacts("orchestrator")})

    assert labels == {A: "orchestrator-a1b2c3d4", B: "orchestrator-ffb2c3d4"}


def test_roles_that_become_equal_only_as_folder_names_collide_too() -> None:
    labels = assign_labels({A: RoleFacts("a/b"), B: RoleFacts("a|b")})

    assert labels == {A: "a_b-a1b2c3d4", B: "a_b-ffb2c3d4"}


def test_equal_short_ids_are_told_apart_by_the_whole_id() -> None:
    other = A[:8] + "0" * 56
    labels = assign_labels({A: RoleFacts("relay"), other: RoleFacts("relay")})

    assert labels == {A: f"relay-{A}", other: f"relay-{other}"}


@pytest.mark.parametrize(
    ("boot", "facts"),
    [
        ({"role": {"0": "stage"}, "stage_index": 1}, RoleFacts("stage", 1)),
        ({"role": ["relay"]}, RoleFacts("relay")),
        ({"role": []}, RoleFacts()),
        ({"role": ""}, RoleFacts()),
        ({"role": 5, "stage_index": True}, RoleFacts()),
        ([], RoleFacts()),
        (None, RoleFacts()),
    ],
)
def test_the_role_is_read_in_all_its_spellings(boot: object, facts: RoleFacts) -> None:
    assert read_role(boot) == facts


def test_labels_are_sorted_as_people_count() -> None:
    labels = ["stage-10", "stage-2", "relay", "stage-1"]

    assert sorted(labels, key=label_order) == ["relay", "stage-1", "stage-2", "stage-10"]
