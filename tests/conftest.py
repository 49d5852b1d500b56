"""Fixtures that every test may use: the event loops that behaviours are checked on."""

from typing import Any

import pytest
import uvloop

ASYNCIO = ("asyncio", {})
UVLOOP = ("asyncio", {"loop_factory": uvloop.new_event_loop})
TRIO = ("trio", {})


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run a coroutine test on asyncio unless its module says otherwise."""
    return ASYNCIO


@pytest.fixture(params=[ASYNCIO, UVLOOP, TRIO], ids=["asyncio", "uvloop", "trio"])
def every_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Each supported event loop in turn; a module makes it its ``anyio_backend``."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend
