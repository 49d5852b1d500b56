"""Guards: what is outside a simulation is shut while it runs, and open again afterwards."""

import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import time
import uuid

import pytest

from sim.errors import ForbiddenInSimulationError
from sim.guards import no_outside_inputs

OUTSIDE: dict[str, tuple[object, str, tuple[object, ...]]] = {
    "clock": (time, "time", ()),
    "monotonic": (time, "monotonic_ns", ()),
    "sleep": (time, "sleep", (0,)),
    "urandom": (os, "urandom", (1,)),
    "uuid": (uuid, "uuid4", ()),
    "random": (random, "random", ()),
    "secrets": (secrets, "token_bytes", (1,)),
    "pid": (os, "getpid", ()),
    "hostname": (socket, "gethostname", ()),
    "socket": (socket, "socket", ()),
    "names": (socket, "getaddrinfo", ("localhost", 1)),
    "child": (subprocess, "call", ([sys.executable, "-c", ""],)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_outside_is_shut_inside_and_open_afterwards(name: str) -> None:
    owner, function, arguments = OUTSIDE[name]

    with no_outside_inputs(), pytest.raises(ForbiddenInSimulationError, match="a simulation has no"):
        getattr(owner, function)(*arguments)

    reached = getattr(owner, function)(*arguments)
    if isinstance(reached, socket.socket):
        reached.close()


def test_guards_nest() -> None:
    with no_outside_inputs():
        with no_outside_inputs():
            pass
        with pytest.raises(ForbiddenInSimulationError):
            os.getpid()
    assert os.getpid() > 0


def test_logging_still_works(caplog: pytest.LogCaptureFixture) -> None:
    with no_outside_inputs():
        logging.getLogger("inside").warning("still here")

    assert caplog.messages == ["still here"]
