"""The least that iroh endpoints could use as a relay: a handshake and a forwarding loop, without any book.

Owns: a relay that forwards, with a bounded queue a client, and nothing else: no write timeout, no limits, no
pings, no records, no end that is told apart. Started as a process of its own; prints its URL.
"""

import asyncio
import os
from collections import deque

from aiohttp import WSMsgType, web

from swactor.relay.protocol import verify_auth

QUEUE_FRAMES = 512


class Peer:
    """One client's queue."""

    def __init__(self, websocket: web.WebSocketResponse) -> None:
        self.websocket = websocket
        self.queue: deque[bytes] = deque()
        self.wake = asyncio.Event()

    def put(self, frame: bytes) -> None:
        """Queue a frame; dropped when the queue is full."""
        if len(self.queue) < QUEUE_FRAMES:
            self.queue.append(frame)
            self.wake.set()

    async def write(self) -> None:
        """Send what is queued until cancelled."""
        while True:
            while self.queue:
                await self.websocket.send_bytes(self.queue.popleft())
            self.wake.clear()
            await self.wake.wait()


async def main() -> None:
    """Relay until killed."""
    peers: dict[bytes, Peer] = {}

    async def relay(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=("iroh-relay-v2",), compress=False, max_msg_size=1 << 20)
        await websocket.prepare(request)
        challenge = os.urandom(16)
        await websocket.send_bytes(b"\x00" + challenge)
        key = verify_auth((await websocket.receive()).data, challenge)
        await websocket.send_bytes(b"\x02")
        peer = peers[key] = Peer(websocket)
        peer.put(b"\x09" + bytes(8))  # What clients of the product get, too.
        writer = asyncio.create_task(peer.write())
        async for message in websocket:
            if message.type is not WSMsgType.BINARY:
                break
            frame = message.data
            if frame[0] == 9:
                peer.put(b"\x0a" + frame[1:])
            elif frame[0] in {4, 5} and (target := peers.get(frame[1:33])) is not None:
                target.put(b"".join((bytes((frame[0] + 2,)), key, frame[33:])))
        writer.cancel()
        return websocket

    application = web.Application()
    application.router.add_get("/relay", relay)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
