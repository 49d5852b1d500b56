"""Keeps today's schema for later tests: ``python -m tests.swactor_diag.schema.freeze v2``.

To be done for each release. Written below ``tests/fixtures/schema/<name>``: the records that this version
writes, its JSON Schema, and a copy of its reader as a zip file, from which Python imports.
"""

import json
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import swactor_diag.schema.reading
from swactor_diag.schema.catalog import json_schema
from tests.swactor_diag.schema import examples

PACKAGES = ("swactor", "swactor_diag", "swactor_process")


def freeze(folder: Path) -> None:
    """Write everything into ``folder``."""
    folder.mkdir(parents=True)
    records = {
        "boot": examples.boot(),
        "events": [*examples.events(), *examples.events(required_only=True)],
        "snapshot": examples.snapshot(),
        "manifest": examples.manifest(),
    }
    (folder / "records.json").write_text(_text(records), encoding="utf-8")
    (folder / "schema.json").write_text(_text(json_schema()), encoding="utf-8")
    with ZipFile(folder / "reader.zip", "w", ZIP_DEFLATED) as archive:
        for name, path in _loaded_sources():
            archive.writestr(ZipInfo(name), path.read_bytes(), ZIP_DEFLATED)


def _loaded_sources() -> list[tuple[str, Path]]:
    """The files that reading a record needs, as they were imported."""
    root = Path(swactor_diag.schema.reading.__file__).parents[2]
    loaded = [m.__file__ for name, m in sys.modules.items() if name.split(".")[0] in PACKAGES and m.__file__]
    return [(path.relative_to(root).as_posix(), path) for path in sorted(map(Path, loaded))]


def _text(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    freeze(Path(__file__).parents[2] / "fixtures" / "schema" / sys.argv[1])
