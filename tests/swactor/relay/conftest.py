"""Relays and clients for the tests of the relay, on both loops that it runs on."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import uvloop

from swactor.relay import RelayConfig, RelaySessionClosed, RelaySessionOpened
from swactor.relay.server import RelayServer
from swactor.relay.testing import RelayClient, RelayEvents

from .field import Field, NoNamespacesError


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """The loops tell the end of a connection each in its own way."""
    return "asyncio", {"loop_factory": request.param}


@pytest.fixture
def events() -> RelayEvents:
    return RelayEvents()


@pytest.fixture
async def new_relay(events: RelayEvents) -> AsyncIterator[Callable[..., Awaitable[RelayServer]]]:
    """Start relays; stop them afterwards, when each session opened must have been closed once."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(**settings: object) -> RelayServer:
            config = RelayConfig(port=0, goodbye_timeout_s=0.5, **settings)  # type: ignore[arg-type]  # any of them
            return await stack.enter_async_context(RelayServer(config, emit=events.emit))

        yield start
    opened = [event.session_id for event in events.of(RelaySessionOpened)]
    closed = [event.session_id for event in events.of(RelaySessionClosed)]
    assert sorted(map(str, opened)) == sorted(map(str, closed))


@pytest.fixture
async def new_client() -> AsyncIterator[Callable[..., RelayClient]]:
    clients: list[RelayClient] = []

    def make(relay: RelayServer, seed: int = 1, **options: str) -> RelayClient:
        clients.append(
            RelayClient(
                relay.url,
                seed,
                subprotocol=options.get("subprotocol", "iroh-relay-v2"),
                token=options.get("token"),
            )
        )
        return clients[-1]

    yield make
    for client in clients:
        await client.drop()


@pytest.fixture
def new_field() -> Iterator[Callable[[int], Field]]:
    """Make fields of so many clients; skip the test where that is not possible."""
    with contextlib.ExitStack() as stack:

        def make(clients: int) -> Field:
            field = Field(clients)
            stack.callback(field.clear)
            try:
                field.build()
            except NoNamespacesError as why:
                pytest.skip(str(why))
            return field

        yield make
