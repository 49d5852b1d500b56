"""The other actor libraries: which there are, and which of them are installed here.

They are optional. Each is used in its own way, see its file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from benches.contender import Contender

INSTALL = "pip install 'swactor[bench]'"


def _pykka() -> Contender:
    from benches.pykka_peer import Pykka

    return Pykka()


def _thespian() -> Contender:
    from benches.thespian_peer import Thespian

    return Thespian()


def _xoscar() -> Contender:
    from benches.xoscar_peer import Xoscar

    return Xoscar()


@dataclass(frozen=True, slots=True)
class Peer:
    """One library; its ``key`` is also the name of its distribution."""

    key: str
    title: str
    text: str
    load: Callable[[], Contender]

    def version(self) -> str | None:
        """Which version is installed, or None when none is."""
        try:
            return version(self.key)
        except PackageNotFoundError:
            return None


PEERS = (
    Peer("pykka", "Pykka", "a thread an actor; bursts so short that the threads do not fight", _pykka),
    Peer("thespian", "Thespian", "its simpleSystemBase: all actors on one thread", _thespian),
    Peer("xoscar", "xoscar", "a pool in this process, local references", _xoscar),
)
