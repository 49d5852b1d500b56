"""HTTP delivery on another event loop than asyncio's says so."""

import pytest

from swactor import SystemClock
from swactor_diag.delivery.http import HttpSink, WrongBackendError
from swactor_diag.schema.submission import Outgoing, RecordKind


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


async def test_on_trio_there_is_a_typed_error() -> None:
    record = Outgoing(kind=RecordKind.BOOT, run_id="r", node_id="n", batch_id="b", body=b"{}")
    with pytest.raises(WrongBackendError):
        await HttpSink("http://127.0.0.1:1", clock=SystemClock()).post(record)
