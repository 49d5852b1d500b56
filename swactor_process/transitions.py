"""What may happen to a child in which state of its life, and where that leads.

Owns: the states, the inputs, the table. What is not in the table comes too late or too early,
and is ignored.
Not here: what is done on the way (``session``).
"""

import enum
from collections.abc import Mapping

from swactor_process._effects import Timer


class State(enum.Enum):
    """Where the child is in its life."""

    __hash__ = object.__hash__  # by identity: looked up again and again

    STARTING = "starting"
    """The spawner is going to be asked, for the first time or again."""
    LOADING = "loading"
    """There is a process, but the program is not loaded."""
    RUNNING = "running"
    STOPPING = "stopping"
    DRAINING = "draining"
    """The direct child has ended; output is read on for a while."""
    EXITED = "exited"
    """The last word was said."""


class Input(enum.Enum):
    """What can happen."""

    __hash__ = object.__hash__  # by identity: looked up again and again

    SPAWNED = enum.auto()
    LOADING_BEGAN = enum.auto()
    REFUSED_FOR_NOW = enum.auto()
    REFUSED = enum.auto()
    RETRY_DUE = enum.auto()
    START_OVERDUE = enum.auto()
    STOP_ASKED = enum.auto()
    SIGNAL_ASKED = enum.auto()
    STDIN_ASKED = enum.auto()
    OUTPUT = enum.auto()
    OWNER_BEHIND = enum.auto()
    OWNER_CAUGHT_UP = enum.auto()
    PROBE_DUE = enum.auto()
    PROBED = enum.auto()
    READY_MARKED = enum.auto()
    READY_OVERDUE = enum.auto()
    GRACE_OVER = enum.auto()
    DEADLINE_OVER = enum.auto()
    CHILD_GONE = enum.auto()
    QUIET_OVER = enum.auto()
    LINGER_OVER = enum.auto()
    GROUP_DUE = enum.auto()
    DRAINED = enum.auto()


TRANSITIONS: Mapping[tuple[State, Input], State] = {
    (State.STARTING, Input.SPAWNED): State.RUNNING,
    (State.STARTING, Input.REFUSED_FOR_NOW): State.STARTING,
    (State.STARTING, Input.REFUSED): State.EXITED,
    (State.STARTING, Input.RETRY_DUE): State.STARTING,
    (State.STARTING, Input.STOP_ASKED): State.EXITED,
    (State.STARTING, Input.SIGNAL_ASKED): State.STARTING,
    (State.STARTING, Input.STDIN_ASKED): State.STARTING,
    (State.STARTING, Input.LOADING_BEGAN): State.LOADING,
    (State.LOADING, Input.SPAWNED): State.RUNNING,
    (State.LOADING, Input.REFUSED_FOR_NOW): State.STARTING,
    (State.LOADING, Input.REFUSED): State.EXITED,
    (State.LOADING, Input.START_OVERDUE): State.EXITED,
    (State.LOADING, Input.STOP_ASKED): State.EXITED,
    (State.LOADING, Input.SIGNAL_ASKED): State.LOADING,
    (State.LOADING, Input.STDIN_ASKED): State.LOADING,
    (State.RUNNING, Input.STOP_ASKED): State.STOPPING,
    (State.RUNNING, Input.SIGNAL_ASKED): State.RUNNING,
    (State.RUNNING, Input.STDIN_ASKED): State.RUNNING,
    (State.RUNNING, Input.OUTPUT): State.RUNNING,
    (State.RUNNING, Input.OWNER_BEHIND): State.RUNNING,
    (State.RUNNING, Input.OWNER_CAUGHT_UP): State.RUNNING,
    (State.RUNNING, Input.PROBE_DUE): State.RUNNING,
    (State.RUNNING, Input.PROBED): State.RUNNING,
    (State.RUNNING, Input.READY_MARKED): State.RUNNING,
    (State.RUNNING, Input.READY_OVERDUE): State.RUNNING,
    (State.RUNNING, Input.CHILD_GONE): State.DRAINING,
    (State.STOPPING, Input.STOP_ASKED): State.STOPPING,
    (State.STOPPING, Input.SIGNAL_ASKED): State.STOPPING,
    (State.STOPPING, Input.STDIN_ASKED): State.STOPPING,
    (State.STOPPING, Input.OUTPUT): State.STOPPING,
    (State.STOPPING, Input.GRACE_OVER): State.STOPPING,
    (State.STOPPING, Input.DEADLINE_OVER): State.STOPPING,
    (State.STOPPING, Input.CHILD_GONE): State.DRAINING,
    (State.DRAINING, Input.STOP_ASKED): State.DRAINING,
    (State.DRAINING, Input.OUTPUT): State.DRAINING,
    (State.DRAINING, Input.QUIET_OVER): State.DRAINING,
    (State.DRAINING, Input.LINGER_OVER): State.DRAINING,
    (State.DRAINING, Input.GROUP_DUE): State.DRAINING,
    (State.DRAINING, Input.DRAINED): State.EXITED,
}


TIMER_INPUTS: Mapping[Timer, Input] = {
    Timer.RETRY: Input.RETRY_DUE,
    Timer.START: Input.START_OVERDUE,
    Timer.READY: Input.READY_OVERDUE,
    Timer.PROBE: Input.PROBE_DUE,
    Timer.GRACE: Input.GRACE_OVER,
    Timer.DEADLINE: Input.DEADLINE_OVER,
    Timer.QUIET: Input.QUIET_OVER,
    Timer.LINGER: Input.LINGER_OVER,
    Timer.GROUP: Input.GROUP_DUE,
}
