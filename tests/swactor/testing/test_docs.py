"""The examples of the documentation are tests, and they pass on every loop."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("source", EXAMPLES, ids=["probe", "clock", "run", "until", "recorder"])
async def test_an_example_passes(source: str) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, "docs/testing.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    for arguments in runs_of(tests[0]):
        await tests[0](**arguments)


def runs_of(test: Any) -> list[dict[str, Any]]:
    """What pytest would call the test with."""
    if not inspect.signature(test).parameters:
        return [{}]
    name, values = test.pytestmark[0].args
    return [{name: value} for value in values]
