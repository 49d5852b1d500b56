"""What the driver itself reports to Observers.

Owns: the one moment that no notification to diagnostics covers, since nothing came to life.
Not here: starts and exits; their owner forwards those, and diagnostics makes events of them.
"""

from typing import Annotated

from msgspec import Meta

from swactor import Event


class SubprocessSpawnFailed(Event, frozen=True, kw_only=True):
    """A child process was asked for and the system refused; nothing was started."""

    label: str
    command: Annotated[str, Meta(description="The program, without its arguments.")]
    spawn_id: str
    errno_name: str
    role: Annotated[
        str,
        Meta(description="program, cwd, interpreter, permission, format, size, limit, output_file, unknown."),
    ]
    path: str
    message: str
