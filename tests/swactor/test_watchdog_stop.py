"""A watchdog that is stopped while it asks: it ends, and whoever stops it does not wait for ever."""

import sys
import threading
import traceback
from types import FrameType

from swactor import ThreadWatchdog, running_loop


class StopsHere:
    """A clock that holds the thread that reads it until somebody lets it go on."""

    def __init__(self) -> None:
        self.read = threading.Event()
        self.go_on = threading.Event()

    def monotonic_ns(self) -> int:
        self.read.set()
        self.go_on.wait(10.0)
        return 0

    def wall_ms(self) -> int:
        return 0


async def test_a_stop_just_before_the_watchdog_asks_is_not_missed() -> None:
    clock = StopsHere()
    found: list[FrameType] = []
    watchdog = ThreadWatchdog(0.001)
    watchdog.start(running_loop(), clock, found=found.append, over=lambda held_s: None)
    assert clock.read.wait(10.0)  # it is about to ask; the loop does not turn from here on
    stopper = threading.Thread(target=watchdog.stop, daemon=True)
    stopper.start()
    while not _waits_for_the_end(stopper):  # for as long as a test may take
        pass
    clock.go_on.set()
    stopper.join(10.0)
    assert not stopper.is_alive()
    assert found == []


def _waits_for_the_end(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and any(call.name == "join" for call in traceback.extract_stack(frame))
