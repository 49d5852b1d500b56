"""Ids that become paths, and the two spellings of a node id."""

import pytest

from swactor_diag.schema.ids import IdError, check_id, read_node_id


@pytest.mark.parametrize("text", ["run-1", "vastai-N3-1779720002", "a", "A.b_c-9", "x" * 128])
def test_fc048_ordinary_ids_pass(text: str) -> None:
    assert check_id(text, what="run id") == text


@pytest.mark.parametrize(
    "text", ["", ".", "..", "../etc", "a/b", "a\0b", "a\r\nX: y", "x" * 129, "ä", "a b", "%2e%2e"]
)
def test_fc048_what_could_leave_its_folder_is_refused(text: str) -> None:
    with pytest.raises(IdError):
        check_id(text, what="run id")


def test_a_node_id_is_read_from_hex_and_from_an_array() -> None:
    assert read_node_id([171] * 32) == "ab" * 32
    assert read_node_id("AB" * 32) == "ab" * 32


@pytest.mark.parametrize("value", ["ab", [1] * 31, [256] * 32, [True] * 32, None, 7])
def test_what_is_no_node_id_gives_none(value: object) -> None:
    assert read_node_id(value) is None
