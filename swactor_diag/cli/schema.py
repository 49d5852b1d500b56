"""``swactor schema``: the JSON Schema of everything a bundle may contain."""

import json

from swactor_diag.cli.console import put


def run() -> None:
    """Print the JSON Schema of bundles: every event, snapshot block, boot record and the manifest."""
    from swactor_diag.schema.catalog import json_schema  # late: slow to import

    put(json.dumps(json_schema(), indent=2, sort_keys=True))
