"""The program of the orphan guard: kills the registered process groups when the node is gone, then ends.

Owns: the form of the list of groups, noticing the node's death, checking that a group is still the one that
was registered, and what the kernel says of processes (the node uses that too).
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

PROC = Path("/proc/self")
PS = ("ps", "-A", "-o", "pid=", "-o", "pgid=", "-o", "stat=")
PS_TIMEOUT_S = 5.0
DEAD = frozenset("ZXx")
"""State letters of processes that only wait to be reaped."""
KILL_ROUNDS = 20
KILL_PAUSE_S = 0.02
"""A group is killed again while members appear: one may have been forking at that moment."""
STAT_MAX_BYTES = 4_096
NODE_PERIOD_MS = 1_000
"""How often the guard looks for its node where no descriptor tells the end of a process."""
RECORD_BYTES = 40
"""Two decimal numbers of 64 bits at most, of which the first fits into 32."""


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
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return parse_stat(os.read(descriptor, STAT_MAX_BYTES))
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None


def is_running(pid: int, start_time: int) -> bool:
    """Return whether the process that ``pid`` named at ``start_time`` still runs."""
    stat = read_stat(pid)
    return stat is not None and stat.start_time == start_time and stat.state not in DEAD


def living_members(group: int) -> tuple[int, ...]:
    """Return the processes of ``group`` that are not dead, in ascending order."""
    if not signal_group(group, 0):
        return ()
    living = living_processes()
    return (group,) if living is None else tuple(pid for pid, its_group in living if its_group == group)


def living_processes() -> list[tuple[int, int]] | None:
    """Return each process that is not dead, in ascending order, and its group; None when nothing tells."""
    return living_by_proc() if PROC.is_dir() else living_by_ps()


def living_by_proc() -> list[tuple[int, int]]:
    """Return the living processes as ``/proc`` shows them. Some 20 microseconds for each there is."""
    pids = sorted(int(entry.name) for entry in PROC.parent.iterdir() if entry.name.isdigit())
    stats = ((pid, read_stat(pid)) for pid in pids)
    return [(pid, stat.group) for pid, stat in stats if stat is not None and stat.state not in DEAD]


def living_by_ps() -> list[tuple[int, int]] | None:
    """Return the living processes as ``ps`` shows them; None when it shows nothing.

    Blocks for some 10 ms.
    """
    import subprocess  # here: hardly ever needed, and the guard has to be there soon

    try:
        text = subprocess.run(PS, capture_output=True, check=True, timeout=PS_TIMEOUT_S).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [words for words in map(bytes.split, text.splitlines()) if len(words) == 3]
    return sorted((int(pid), int(group)) for pid, group, state in rows if chr(state[0]) not in DEAD)


def format_record(group: int, start_time: int | None) -> bytes:
    """Return the record of one group: its number and, if known, the start time of its leader."""
    return b"%d\n" % group if start_time is None else b"%d %d\n" % (group, start_time)


def parse_records(data: bytes) -> dict[int, int | None]:
    """Return the groups in ``data`` and their start times; blank and malformed records are skipped."""
    groups: dict[int, int | None] = {}
    for line in data.splitlines():
        words = line.split()
        with contextlib.suppress(ValueError, IndexError):
            group = int(words[0])
            if group > 1:
                groups[group] = int(words[1]) if len(words) > 1 else None
    return groups


def is_same_group(group: int, start_time: int | None) -> bool:
    """Return whether ``group`` can still be the group whose leader started at ``start_time``."""
    leader = read_stat(group)
    return leader is None or start_time is None or leader.start_time == start_time


def kill_groups(groups: dict[int, int | None]) -> None:
    """Kill what is left of ``groups``: all at once, before it is looked at what they hold.

    One look serves all of them: on a machine with thousands of processes it takes a tenth of a second.
    """
    left = set(groups)
    for _ in range(KILL_ROUNDS):
        left = {
            group
            for group in left
            if is_same_group(group, groups[group]) and signal_group(group, signal.SIGKILL)
        }
        if not left:
            return
        time.sleep(KILL_PAUSE_S)
        living = living_processes()
        if living is not None:
            left &= {group for _, group in living}


def signal_group(group: int, number: int) -> bool:
    """Signal the processes of ``group``, 0 for not at all; return whether there are any, dead ones too."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # there are some; they run as somebody else
    return True


def wait_for_the_end_of(node_pid: int, descriptor: int) -> None:
    """Return when the node has closed its end of the pipe ``descriptor``, or has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    # A process that the node forked without exec keeps the pipe open: so watch the node itself as well.
    timeout_ms: int | None = NODE_PERIOD_MS
    with contextlib.suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(node_pid), select.POLLIN)
        timeout_ms = None
    while os.getppid() == node_pid:
        if poll.poll(timeout_ms):
            return


def read_all(descriptor: int) -> bytes:
    """Return what is in a file, from its beginning."""
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()


def main() -> None:
    """Guard the node: its process id, and the descriptor of its list of groups, are the arguments.

    Standard input ends with the node. Standard output is not written to: it ends with the guard.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # it ends with the node, and not before
    wait_for_the_end_of(int(sys.argv[1]), 0)
    kill_groups(parse_records(read_all(int(sys.argv[2]))))
    os._exit(0)


if __name__ == "__main__":
    main()
