"""No real time, chance or machine inside a simulation: while guarded, reaching for them raises.

Owns: the list of functions that are shut, and opening them again. What is shut names its replacement.
Not here: what a loop offers (`sim.loop` refuses that by itself). A name that a module bound with
``from time import ...`` before, ``datetime.now`` and the environment cannot be shut; lint bans those.
"""

import os
import random
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sim.errors import CHILDREN, NAMES, SOCKETS, ForbiddenInSimulationError

_CLOCK = ("real time", "the clock port")
_CHANCE = ("real randomness", "the random port")
_MACHINE = ("real machine", "the node's identity")

# Callers that stamp or draw for their own housekeeping; nothing of it reaches a record.
_ALLOWED_CALLERS = (
    "logging",
    "threading",
    "concurrent",
    "importlib",
    "_frozen_importlib",
    "warnings",
    "linecache",
)

_SHUT: tuple[tuple[object, tuple[str, ...], tuple[str, str]], ...] = (
    (
        time,
        (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "process_time",
            "process_time_ns",
            "sleep",
            "localtime",
            "gmtime",
        ),
        _CLOCK,
    ),
    (os, ("urandom", "getrandom"), _CHANCE),
    (uuid, ("uuid1", "uuid4"), _CHANCE),
    (
        random,
        (
            "_urandom",  # what SystemRandom, and so the module secrets, draws from
            "random",
            "randint",
            "randrange",
            "randbytes",
            "getrandbits",
            "choice",
            "choices",
            "shuffle",
            "sample",
            "uniform",
            "gauss",
            "normalvariate",
            "expovariate",
            "seed",
        ),
        _CHANCE,
    ),
    (os, ("getpid", "getppid", "uname"), _MACHINE),
    (socket, ("gethostname", "getfqdn"), _MACHINE),
    (socket.socket, ("__init__",), SOCKETS),
    (socket, ("getaddrinfo", "gethostbyname"), NAMES),
    (subprocess.Popen, ("__init__",), CHILDREN),
    (os, ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen"), CHILDREN),
)


@contextmanager
def no_outside_inputs() -> Iterator[None]:
    """Shut the clock, chance and the machine for the duration of the ``with`` block.

    Raises, inside the block, `ForbiddenInSimulationError` where somebody calls one of them. Nesting is fine.
    """
    with ExitStack() as undo:
        for owner, names, (what, instead) in _SHUT:
            for name in names:
                original = getattr(owner, name, None)
                if original is not None:
                    setattr(owner, name, _shut(original, name=name, what=what, instead=instead))
                    undo.callback(setattr, owner, name, original)
        yield


def _shut(original: Callable[..., object], *, name: str, what: str, instead: str) -> Callable[..., object]:
    def refuse(*args: object, **options: object) -> object:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] in _ALLOWED_CALLERS:
            return original(*args, **options)
        raise ForbiddenInSimulationError(f"{what} ({name})", instead)

    return refuse
