"""The kit needs what the runtime needs, and nothing else: no test framework, no cluster, no other backend."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import swactor.testing
print(*sys.modules)
"""
UNNEEDED = {"aiohttp", "cryptography", "httpx", "iroh", "pytest", "trio", "uvloop"}


def test_the_kit_is_imported_with_anyio_and_msgspec_alone() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True, cwd=root
    )
    loaded = done.stdout.split()
    assert UNNEEDED.isdisjoint(loaded)
    assert [name for name in loaded if name.startswith(("swactor.cluster", "swactor.relay"))] == []
