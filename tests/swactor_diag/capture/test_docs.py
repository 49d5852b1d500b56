"""The examples of the documentation run as they stand there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "diagnostics.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("source", EXAMPLES, ids=["opt in", "event", "introspector"])
async def test_an_example_runs(source: str) -> None:
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(source, "docs/diagnostics.md", "exec"), names)
    main = names.get("main")
    if callable(main):
        await main()
