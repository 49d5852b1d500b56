"""Waiting for what callbacks bring about, in the time of the loop, without polling.

Owns: `Conditions`, on which `Recorder` and `Probe` and the fakes of ports build. On a loop with a manual
clock the waiting itself lets time pass.
"""

from collections.abc import Callable

from swactor.abc import Loop, Waiter
from swactor.testing._clock import ManualLoop
from swactor.testing._idle import SETTLE_LIMIT_S, wait_until_idle


class Conditions:
    """What several coroutines wait for, looked at again whenever somebody says that something changed."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: list[tuple[Callable[[], bool], Waiter[bool]]] = []

    def changed(self) -> None:
        """Look again at what is waited for. Cheap; to be called from the callback that changed something."""
        for condition, waiter in self._waiting:
            if condition():
                waiter.set(True)

    async def wait(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until ``condition`` holds; return whether it did within ``timeout_s`` seconds of the loop.

        With a manual clock the clock moves from timer to timer, to the end of the timeout at most. A timeout
        of 0 waits for what is ready now, and lets no time pass.

        Raises:
            NotSettledError: something keeps the loop busy, so a manual clock, or a timeout of 0, cannot work.
        """
        if isinstance(self._loop, ManualLoop):
            return await self._loop.clock.advance_until(condition, timeout_s=timeout_s)
        if timeout_s <= 0 and not condition():
            await wait_until_idle(lambda: 0, limit_s=SETTLE_LIMIT_S)
        if condition() or timeout_s <= 0:
            return condition()
        return await self._wait_for_change(condition, timeout_s)

    async def _wait_for_change(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        waiter: Waiter[bool] = self._loop.waiter()
        entry = (condition, waiter)
        self._waiting.append(entry)
        timer = self._loop.call_later(timeout_s, lambda: waiter.set(False))
        try:
            return await waiter.wait() or condition()
        finally:
            timer.cancel()
            self._waiting.remove(entry)
