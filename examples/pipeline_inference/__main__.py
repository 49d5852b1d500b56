"""``python -m examples.pipeline_inference``: see ``--help``."""

from examples.pipeline_inference.command import app
from swactor_diag.cli.entry import mend_streams

mend_streams()
app(prog_name="python -m examples.pipeline_inference")
