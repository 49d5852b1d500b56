"""What the driver itself reports to Observers.

Owns: the moments that no notification to diagnostics covers: nothing came to life, or will for a while, or
is still there from an earlier boot (that one is found by a spawner, and emitted by the node).
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


class SubprocessLeftBehind(Event, frozen=True, kw_only=True):
    """A child of an earlier boot of this node, or something it started, still lives; found at this boot."""

    label: str
    pid: Annotated[int, Meta(description="Of the child, which led the group; it may have ended.")]
    start_time: Annotated[int, Meta(description="Kernel ticks from the machine's boot to the child's start.")]
    child_alive: Annotated[bool, Meta(description="False: it has ended, and left others.")]
    pids: Annotated[tuple[int, ...], Meta(description="Who lives, at most 64 of them.")]
    alive: Annotated[int, Meta(description="How many live.")]
    node_pid: Annotated[int, Meta(description="The process that this node was then.")]
    cgroup: Annotated[str | None, Meta(description="The control group of its own that it was given.")] = None

    def describe(self) -> str:
        """Return what was found, for people."""
        named = ", ".join(str(pid) for pid in self.pids)
        more = f" and {self.alive - len(self.pids)} more" if self.alive > len(self.pids) else ""
        return f"{self.label} of an earlier boot (process {self.node_pid}) has left {named}{more} alive"
