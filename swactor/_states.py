"""Where in its life an actor is.

Owns: the states and their order. Not here: what leads from one to the next (`_life`).
"""

import enum
from typing import Final


class LifeState(enum.Enum):
    """Where in its life an actor is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DOWN = "down"
    """Ended, but its supervisor may start it again; the mailbox is kept."""
    ENDED = "ended"


STARTING: Final = LifeState.STARTING
RUNNING: Final = LifeState.RUNNING  # an attribute of an Enum class is found by a search, on Python 3.11
STOPPING: Final = LifeState.STOPPING
DOWN: Final = LifeState.DOWN
ENDED: Final = LifeState.ENDED
