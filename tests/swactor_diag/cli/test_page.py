"""A summary on a screen of any width."""

import io
import re
from collections import Counter
from pathlib import Path

import pytest
import rich.markdown
from rich.box import SIMPLE_HEAVY
from rich.console import Console
from rich.table import Table

from swactor_diag.cli.page import THEME, Page

SUMMARY = Path(__file__).parents[1] / "postproc" / "golden" / "three_stages.md"


def shown(markdown: str, width: int, *, color: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, theme=THEME, force_terminal=color, color_system="256" if color else None
    )
    console.print(Page(markdown))
    return file.getvalue()


def letters(text: str) -> Counter[str]:
    return Counter(char for char in text if char.isalnum())


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 200])
def test_nothing_is_cut_off_however_narrow_the_terminal_is(width: int) -> None:
    summary = SUMMARY.read_text(encoding="utf-8")
    lines = shown(summary, width).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    assert letters("".join(lines)) == letters(summary)


def test_at_80_columns_no_word_is_broken() -> None:
    summary = SUMMARY.read_text(encoding="utf-8").replace("2026-05-25 ", "")
    nodes = summary[summary.index("## Nodes") : summary.index("## First peer")]
    words = {word for word in nodes.split() if word.isalnum()}
    assert words - set(shown(nodes, 80).split()) == set()


def test_tables_look_the_same_with_an_older_rich_that_makes_other_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summary = SUMMARY.read_text(encoding="utf-8")
    today = shown(summary, 80)
    monkeypatch.setattr(rich.markdown, "Table", lambda **_: Table(box=SIMPLE_HEAVY))
    assert shown(summary, 80) == today


def test_no_text_has_a_background_that_a_light_terminal_would_show() -> None:
    codes = re.findall(r"\x1b\[([\d;]*)m", shown("# A\n\n## B\n\na `value` here", 80, color=True))
    assert codes
    assert not {"40", "48"} & {number for code in codes for number in code.split(";")}
