"""One dial: a native attempt that takes as long as it likes, and an answer that comes in time.

Owns: the bound on the answer, and what happens to a connection that comes too late.
Not here: how the attempt is made (``iroh``). The library gives up after 30 s only, and nothing shortens that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from iroh import Connection as NativeConnection
from iroh import IrohError

from swactor.cluster.transport._base import DIAL_TIMEOUT_MS, Connection, DialFailed, DialResult
from swactor.cluster.transport._iroh_connection import IrohConnection, close_native
from swactor.cluster.transport._iroh_reasons import cause, dial_failure

LATE_CODE: Final = 408
"""Close code for a connection that came after its dial was answered or called off."""


class IrohDial:
    """A `Cancellable` dial. Its ``on_done`` is called once, unless it was called off before.

    ``connect`` makes the native connection; ``take`` makes a `Connection` of it, if it is still wanted.
    """

    def __init__(
        self,
        connect: Awaitable[NativeConnection],
        take: Callable[[NativeConnection], Awaitable[IrohConnection]],
        on_done: Callable[[Connection | DialFailed], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._on_done: Callable[[Connection | DialFailed], None] | None = on_done
        self.attempt: Final = loop.create_task(self._attempt(connect, take), name="iroh-dial")
        """The native attempt; outlives the answer."""
        late = DialFailed(DialResult.TIMEOUT, f"no connection within {DIAL_TIMEOUT_MS} ms")
        self._timer = loop.call_later(DIAL_TIMEOUT_MS / 1_000, self.answer, late)

    def cancel(self) -> None:
        """Call it off; a connection that still comes is closed."""
        self._on_done = None
        self._timer.cancel()

    def answer(self, result: Connection | DialFailed) -> None:
        """Give the answer, unless there was one or nobody wants it any more."""
        on_done, self._on_done = self._on_done, None
        self._timer.cancel()
        if on_done is not None:
            asyncio.get_running_loop().call_soon(on_done, result)

    def _is_over(self) -> bool:
        """Whether it was answered or called off."""
        return self._on_done is None

    async def _attempt(
        self,
        connect: Awaitable[NativeConnection],
        take: Callable[[NativeConnection], Awaitable[IrohConnection]],
    ) -> None:
        """Make the connection and answer with it, or close it when it comes too late."""
        try:
            native = await connect
            if self._is_over():
                close_native(native, LATE_CODE, "the dial is over")
                return
            connection = await take(native)
        except IrohError as error:
            self.answer(dial_failure(cause(error.message())))
        except Exception as error:  # noqa: BLE001 - a bad address, say: a dial has one way to tell, its answer
            self.answer(dial_failure(f"{type(error).__name__}: {error}"))
        else:
            if self._is_over():
                connection.close(LATE_CODE, "the dial is over")
            else:
                self.answer(connection)
