"""What a page holds for programs: examples that run.

Owns: how they are found in the text, and what running one means.
Not here: which pages are run (``tests/contracts/test_docs.py``).
"""

import inspect
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent
_FENCE = re.compile(r"```(?P<language>\w*)")


@dataclass(frozen=True, slots=True)
class Example:
    """A block of Python on a page. It runs as it stands there."""

    page: Path
    line: int
    """The line of the page that its first one is, from 1."""
    source: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    async def run(self) -> None:
        """Execute it; then await its ``main`` and its tests, if it has any, as pytest would call them."""
        names: dict[str, Any] = {"__name__": "example"}
        # With the line numbers of the page, a traceback shows the page.
        program = compile("\n" * (self.line - 1) + self.source, self.page, "exec")
        exec(program, names)  # noqa: S102 - the pages are ours
        for name, value in list(names.items()):
            if name == "main" or name.startswith("test_"):
                for arguments in _parameters(value):
                    await value(**arguments)


def examples(page: Path) -> list[Example]:
    """Return the Python blocks of ``page``, in order."""
    found: list[Example] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    begins, language = 0, ""
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            continue
        if not begins:
            begins, language = number + 1, fence["language"]
            continue
        if language == "python":
            found.append(Example(page, begins, "\n".join([*lines[begins - 1 : number - 1], ""])))
        begins = 0
    return found


def _parameters(test: Callable[..., Coroutine[Any, Any, None]]) -> list[dict[str, Any]]:
    """What pytest would call ``test`` with: nothing, or each value of its one parametrized argument."""
    if not inspect.signature(test).parameters:
        return [{}]
    mark: Any = getattr(test, "pytestmark")[0]  # noqa: B009 - pytest's decorator put it there
    name, values = mark.args
    return [{name: value} for value in values]
