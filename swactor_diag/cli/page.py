"""A summary on a screen: Markdown whose tables lose nothing, however narrow the terminal is.

Owns: how it looks. Not here: what it says (``swactor_diag.postproc``).
"""

from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table
from rich.theme import Theme

THEME = Theme({"markdown.code": "cyan", "markdown.h1": "bold", "markdown.h2": "bold magenta"})
"""Readable on dark and on light: nothing has a background."""
WORD_MAX = 24
"""A longer word may be broken: a path, a URL. Times, ids and names are not."""


class Page(Markdown):
    """Markdown with tables that are made narrower between words first, and that cut nothing off."""


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.box = SIMPLE  # this and the next: versions of Rich differ in it
                table.pad_edge, table.collapse_padding = False, True
                table.show_edge = False
                _fit(table, options.max_width)
            yield table


def _fit(table: Table, width: int) -> None:
    """Give each column its longest word, and what is left to those with more to say."""
    texts = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    wanted = [max(map(len, column)) for column in texts]
    room = width - 2 * (len(wanted) - 1)  # two blanks between columns
    if sum(wanted) <= room:
        return
    least = [min(WORD_MAX, max(len(word) for cell in cells for word in cell.split())) for cells in texts]
    more = [all_of_it - word for all_of_it, word in zip(wanted, least, strict=True)]
    left = room - sum(least)
    for column, word, rest in zip(table.columns, least, more, strict=True):
        column.overflow = "fold"
        share = rest * left // sum(more) if left > 0 else word * left // sum(least)
        column.width = max(1, word + share)


Page.elements = {**Markdown.elements, "table_open": _Table}
