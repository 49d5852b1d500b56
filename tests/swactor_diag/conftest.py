"""Who a node of these tests is."""

import pytest

from swactor_diag.schema.boot import Identity

NODE = "ab" * 32


@pytest.fixture
def identity() -> Identity:
    return Identity(
        node_id_hex=NODE,
        node_id_short=NODE[:8],
        role="stage",
        run_id="r",
        process_start_unix_ms=1_700_000_000_000,
        boot_id="b1",
    )
