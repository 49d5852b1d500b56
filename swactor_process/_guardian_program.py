"""The program of the orphan guard: kills the registered process groups when the node is gone, then ends.

Owns: reading the node's lines (``+GROUP START`` and ``-GROUP``), noticing the node's death, checking that a
group is still the one that was registered, and reading ``/proc/PID/stat`` for that (``linux`` uses it too).
Not here: the node's side (``guardian``). Runs as a file of its own, without site packages, so it imports
nothing but the standard library.
"""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

KILL_ROUNDS = 20
KILL_PAUSE_S = 0.02
"""A group is killed again while members appear: one may have been forking at that moment."""
LINE_MAX_BYTES = 100


class Stat(NamedTuple):
    """What ``/proc/PID/stat`` says of a process. ``start_time``: kernel ticks since the machine's boot."""

    state: str
    group: int
    session: int
    start_time: int


def parse_stat(line: bytes) -> Stat:
    """Return the fields of one ``stat`` line; a process may call itself anything, ``) R 1`` too.

    Raises:
        ValueError: not such a line.
    """
    fields = line[line.rindex(b")") + 1 :].split()
    if len(fields) < 20:
        raise ValueError("too few fields in a stat line")
    return Stat(fields[0].decode("ascii"), int(fields[2]), int(fields[3]), int(fields[19]))


def read_stat(pid: int) -> Stat | None:
    """Return what the kernel says of ``pid``; None when there is no such process or it cannot be read."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except (OSError, ValueError):
        return None


def living_members(group: int) -> tuple[int, ...]:
    """Return the processes of ``group`` that are not dead, in ascending order."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return ()
    except PermissionError:
        pass  # there are some; they run as somebody else
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    stats = ((pid, read_stat(pid)) for pid in pids)
    return tuple(
        pid for pid, stat in stats if stat is not None and stat.group == group and stat.state not in "ZXx"
    )


def parse_lines(data: bytes) -> tuple[list[tuple[int, int | None, bool]], bytes]:
    """Return (group, start time, registered) for each complete line, and the rest; skip malformed lines."""
    *lines, rest = data.split(b"\n")
    changes: list[tuple[int, int | None, bool]] = []
    for line in lines:
        words = line[1:].split()
        with contextlib.suppress(ValueError, IndexError):
            group = int(words[0])
            if group > 1 and line[:1] in {b"+", b"-"}:
                start_time = int(words[1]) if len(words) > 1 else None
                changes.append((group, start_time, line[:1] == b"+"))
    return changes, rest if len(rest) <= LINE_MAX_BYTES else b""


def is_same_group(group: int, start_time: int | None) -> bool:
    """Return whether ``group`` can still be the group whose leader started at ``start_time``."""
    leader = read_stat(group)
    return leader is None or start_time is None or leader.start_time == start_time


def kill_groups(groups: dict[int, int | None]) -> None:
    """Kill what is left of ``groups``."""
    for _ in range(KILL_ROUNDS):
        left = [
            group for group, start in groups.items() if is_same_group(group, start) and living_members(group)
        ]
        for group in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        if not left:
            return
        time.sleep(KILL_PAUSE_S)


def watch(descriptor: int, node_pid: int) -> dict[int, int | None]:
    """Return the registered groups once the node has closed ``descriptor`` or has ended."""
    groups: dict[int, int | None] = {}
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    # A process that the node forked without exec keeps the pipe open: so watch the node itself as well.
    with contextlib.suppress(OSError):
        node = os.pidfd_open(node_pid)
        if os.getppid() == node_pid:
            poll.register(node, select.POLLIN)
    rest = b""
    while True:
        ready = {number for number, _ in poll.poll()}
        if descriptor in ready:
            data = os.read(descriptor, 65_536)
            if not data:
                return groups
            changes, rest = parse_lines(rest + data)
            for group, start_time, registered in changes:
                groups.pop(group, None)
                if registered:
                    groups[group] = start_time
        elif ready:
            return groups


def main() -> None:
    """Guard the node whose process id is the argument, over standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # it ends with the node, and not before
    kill_groups(watch(0, int(sys.argv[1])))
    os._exit(0)


if __name__ == "__main__":
    main()
