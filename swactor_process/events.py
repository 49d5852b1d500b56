"""What the driver itself reports to Observers.

Owns: the moments that no notification to diagnostics covers: nothing came to life, or will for a while.
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


class SubprocessGivenUp(Event, frozen=True, kw_only=True):
    """A child process that is kept running has ended too often; it is tried again slowly, or no more."""

    label: str
    last: Annotated[str | None, Meta(description="How it ended the last time; absent: its driver failed.")]
    retry_ms: Annotated[
        int | None, Meta(description="Until the next attempt; absent: its supervisor decides.")
    ]
