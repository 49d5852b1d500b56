"""Fixtures that every test may use: the event loops that behaviours are checked on, and Ctrl-C."""

import gc
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("swactor", deadline=None)
settings.load_profile("swactor")

Backend = tuple[str, dict[str, Any]]

ASYNCIO: Backend = ("asyncio", {})
UVLOOP: Backend = ("asyncio", {"loop_factory": uvloop.new_event_loop})
TRIO: Backend = ("trio", {})


@pytest.fixture
def anyio_backend() -> Backend:
    """Run a coroutine test on asyncio unless its module says otherwise."""
    return ASYNCIO


@pytest.fixture(params=[ASYNCIO, UVLOOP, TRIO], ids=["asyncio", "uvloop", "trio"])
def every_backend(request: pytest.FixtureRequest) -> Backend:
    """Each supported event loop in turn; a module makes it its ``anyio_backend``."""
    backend: Backend = request.param
    return backend


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, as in a program that a person started, whoever started the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    gc.collect()  # what asyncio logs of a task that was interrupted belongs to this test
