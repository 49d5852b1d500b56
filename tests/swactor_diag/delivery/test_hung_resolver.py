"""A resolver that never answers, in a real process on every event loop."""

import subprocess
import sys
from pathlib import Path

import pytest

NODE = Path(__file__).parents[2] / "fixtures" / "nodes" / "unresolved_node.py"


@pytest.mark.parametrize("backend", [("asyncio",), ("asyncio", "uvloop"), ("trio",)], ids=lambda one: one[-1])
def test_a_lookup_that_never_returns_does_not_keep_the_process(backend: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, str(NODE), *backend], capture_output=True, text=True, timeout=20, check=True
    )
    assert ended.stdout == "collector.test collector.test relay.test relay.test"
    assert not ended.stderr
