"""``python -m examples.pipeline_inference``: see ``--help``."""

from examples.pipeline_inference.command import app

app(prog_name="python -m examples.pipeline_inference")
