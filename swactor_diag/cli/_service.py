"""What the long-running commands share: saying that they listen, and stopping when asked.

Owns: the ready line, the signals that mean stop, and the node identity of a service. Asyncio only.
Not here: any service.
"""

import asyncio
import hashlib
import json
import signal
from pathlib import Path
from typing import Self

from swactor_diag.cli.console import CommandError, Exit, put, say

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def announce(name: str, url: str, *, notes: str = "") -> None:
    """Say where the service listens: one JSON line for programs, one line for people."""
    put(json.dumps({"event": "listening", "url": url}))
    say(f"{name} listens on {url}{notes}; SIGTERM or Ctrl-C stops it")


class StopSignal:
    """Catches the signals that ask this process to stop, from ``with`` to its end.

    Enter it before saying that the service is ready: from then on somebody may send one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[str] = self._loop.create_future()

    def __enter__(self) -> Self:
        """Begin to catch."""
        for number in _STOPPING:
            self._loop.add_signal_handler(number, self._ask, number)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals their old meaning back."""
        for number in _STOPPING:
            self._loop.remove_signal_handler(number)

    async def wait(self) -> str:
        """Return the name of the signal that asked this process to stop; the next one changes nothing."""
        return await self._asked

    def _ask(self, number: signal.Signals) -> None:
        if not self._asked.done():
            self._asked.set_result(number.name)


def service_node_id(role: str, url: str) -> str:
    """Return the node id of a service without a key pair: the same for the same role and address."""
    return hashlib.sha256(f"{role} {url}".encode()).hexdigest()


def read_token(path: Path | None) -> str | None:
    """Return the token in ``path``; None without a path.

    Raises:
        CommandError: there is no such file, or it holds no token.
    """
    if path is None:
        return None
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandError(f"cannot read the token file {path}", status=Exit.WRONG_INPUT) from exc
    if not token:
        raise CommandError(f"the token file {path} is empty", status=Exit.WRONG_INPUT)
    return token
