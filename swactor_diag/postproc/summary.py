"""The whole summary of a bundle, as Markdown.

Owns: the title, the warning when the archive is not whole, and the order of things. Not here: what a section
says (``sections``), writing files (``swactor_diag.cli``).
"""

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import inert
from swactor_diag.postproc.sections import SECTIONS


def render(run: Run) -> str:
    """Return the summary. Every section has its heading, also one that has nothing to show."""
    parts = []
    if run.incomplete:
        parts.append("> Warning: this bundle is cut off or damaged; the summary covers what could be read.")
    parts.append(f"# Run {inert(run.run_id)}")
    parts += [f"## {section.title}\n\n{section.body(run)}" for section in SECTIONS]
    return "\n\n".join(parts) + "\n"
