"""The kit for tests of your own actors: a clock that only the test moves, a recorder, a probe.

Needs no test framework. How to use it: ``docs/testing.md``. Fakes and conformance checks of a port stand
beside the port: ``swactor.cluster.testing``, ``swactor.relay.testing``, ``swactor_process.testing``.
"""

from swactor.testing._clock import ManualClock
from swactor.testing._conditions import Conditions
from swactor.testing._errors import (
    ConditionError,
    ExpectationError,
    MissingEventError,
    MissingMessageError,
    NotSettledError,
    UnexpectedMessageError,
    UnfinishedError,
)
from swactor.testing._probe import Probe, ProbeFullError
from swactor.testing._recorder import Recorder
from swactor.testing._until import until

__all__ = [
    "ConditionError",
    "Conditions",
    "ExpectationError",
    "ManualClock",
    "MissingEventError",
    "MissingMessageError",
    "NotSettledError",
    "Probe",
    "ProbeFullError",
    "Recorder",
    "UnexpectedMessageError",
    "UnfinishedError",
    "until",
]
