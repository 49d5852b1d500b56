"""Actors that do not come to an end by themselves: one that can be cancelled, one that ignores even that."""

from typing import Any

import anyio

from swactor import Actor, Context


class Hangs(Actor[Any]):
    """Handles its first message for ever."""

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        await anyio.sleep_forever()


class Stubborn(Actor[Any]):
    """Ignores its cancellation until it is released."""

    def __init__(self, release: anyio.Event) -> None:
        self._release = release

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        await stubbornly(self._release)


async def stubbornly(release: anyio.Event) -> None:
    """Wait until released, whoever cancels that."""
    while not release.is_set():
        try:
            with anyio.CancelScope(shield=True):
                await release.wait()
        except BaseException:  # noqa: BLE001 - it swallows its cancellation on purpose
            continue
