"""The pages must be true: what they show runs on every loop, what they link to exists."""

import re
from pathlib import Path
from typing import Any

import pytest

from docs.pages import PAGES, Example, examples

RUN = ("diagnostics.md", "testing.md")
"""The pages whose examples are whole programs."""


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@pytest.mark.parametrize("example", [found for page in RUN for found in examples(PAGES / page)], ids=str)
async def test_an_example_runs_on_every_loop(example: Example) -> None:
    await example.run()


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_every_heading_that_a_page_links_to_exists(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        text = (PAGES / (target or page.name)).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
