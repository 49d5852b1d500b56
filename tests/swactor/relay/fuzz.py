"""Attacks a relay with inputs that libFuzzer finds, by what they reach in the relay's code: ``make fuzz``.

Not a test by itself: it runs as long as it is told to (``-max_total_time=SECONDS``) and needs ``atheris``. A
crash, a session that goes on, a bystander that is touched or too much memory ends it early, with the input.
"""

import asyncio
import sys

import atheris

with atheris.instrument_imports(include=["swactor.relay", "aiohttp"]):
    from swactor import Event
    from swactor.relay import RelayConfig
    from swactor.relay.server import RelayServer
    from swactor.relay.testing import RelayClient, RelayEvents
    from tests.swactor.relay.attack import Stage, attack, framed

HEADS = (0x82, 0x82, 0x82, 0x82, 0x81, 0x02, 0x00, 0x80, 0x88, 0x89, 0x8A, 0xC2)
EVENTS_KEPT = 1000


class Target:
    """One relay with a client that behaves, attacked again and again."""

    def __init__(self) -> None:
        self._events = RelayEvents()
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start())

    def _emit(self, event: Event) -> None:
        self._events.emit(event)

    async def _start(self) -> None:
        config = RelayConfig(port=0, goodbye_timeout_s=0.5)
        self._relay = RelayServer(config, emit=self._emit)
        await self._relay.start()
        self._bystander = await RelayClient(self._relay.url, 1).open()

    def attack(self, data: bytes) -> None:
        """Take ``data`` for a stage and for what is sent from there on."""
        if len(self._events.all) > EVENTS_KEPT:
            self._events = RelayEvents()
        provider = atheris.FuzzedDataProvider(data)
        stage = Stage(provider.ConsumeIntInRange(0, 2))
        pieces: list[bytes] = []
        while provider.remaining_bytes() and len(pieces) < 16:
            head = provider.PickValueInList([*HEADS, 0])
            body = provider.ConsumeBytes(provider.ConsumeIntInRange(0, 200))
            pieces.append(body if head == 0 else framed(body, head=head))
        self._loop.run_until_complete(
            attack(self._relay, self._events, self._bystander, stage=stage, pieces=pieces)
        )


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-rss_limit_mb=400"], Target().attack)
    atheris.Fuzz()
