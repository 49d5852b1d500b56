"""The UDP port that sends every datagram back, so that nodes can tell whether UDP gets through.

Owns: the socket. A datagram of more than 1,500 bytes is not answered, and no answer is larger than its
question, so that the port is of no use for flooding somebody else.
"""

import asyncio
from typing import cast

DATAGRAM_BYTES_MAX = 1_500


class UdpEcho(asyncio.DatagramProtocol):
    """Answers datagrams while it is open."""

    def __init__(self) -> None:
        self._transport: asyncio.DatagramTransport | None = None

    @classmethod
    async def open(cls, host: str, port: int) -> "UdpEcho":
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        _, echo = await loop.create_datagram_endpoint(cls, local_addr=(host, port))
        return echo

    @property
    def port(self) -> int:
        """The real port; 0 when closed."""
        if self._transport is None:
            return 0
        return cast("int", self._transport.get_extra_info("sockname")[1])

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio`."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """See `asyncio`."""
        if self._transport is not None and len(data) <= DATAGRAM_BYTES_MAX:
            self._transport.sendto(data, addr)
