"""The pages must be true: what they show runs on every loop, and what follows from the code is up to date."""

import re
from pathlib import Path
from typing import Any

import pytest

from docs.pages import PAGES, Example, examples, with_parts
from docs.tables import FILES, PARTS, written
from swactor_diag.schema.catalog import BLOCKS, EVENTS

RUN = ("cookbook.md", "diagnostics.md", "migration.md", "supervision.md", "testing.md")
"""The pages whose examples are whole programs."""


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@pytest.mark.parametrize("example", [found for page in RUN for found in examples(PAGES / page)], ids=str)
async def test_an_example_runs_on_every_loop(example: Example) -> None:
    await example.run()


def test_a_pattern_of_the_cookbook_fits_on_a_screen() -> None:
    for pattern in examples(PAGES / "cookbook.md"):
        code = [line for line in pattern.source.splitlines() if not re.match(r"$|import |from ", line)]
        assert len(code) <= 30, pattern


@pytest.mark.parametrize("page", PARTS)
def test_the_tables_of_a_page_say_what_the_code_does(page: str) -> None:
    assert (PAGES / page).read_text(encoding="utf-8") == written(PAGES / page), "run `make docs`"


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_what_the_code_says(name: str) -> None:
    assert (PAGES / name).read_text(encoding="utf-8") == FILES[name](), "run `make docs`"


def test_every_record_of_a_bundle_is_on_the_reference_page() -> None:
    text = (PAGES / "records.md").read_text(encoding="utf-8")
    missing = [
        name for name in (*EVENTS, *BLOCKS) if f"### {name}\n" not in text and f"### `{name}`\n" not in text
    ]
    assert missing == []


def test_a_table_without_a_place_on_its_page_is_noticed() -> None:
    with pytest.raises(ValueError, match="no place for 'delays'"):
        with_parts("a page without it", {"delays": "| a table |"})


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_every_heading_that_a_page_links_to_exists(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        text = (PAGES / (target or page.name)).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
