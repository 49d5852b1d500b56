"""A config that makes no sense is refused where it is made, and says what is wrong."""

import math

import pytest

from swactor_diag.supervisor import DiagnosticsConfig

TIMES = ["snapshot_period_s", "introspection_deadline_s", "batch_interval_s", "finalize_timeout_s"]


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("field", TIMES)
def test_periods_and_deadlines_are_finite_and_above_0(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be finite and above 0, not {value}"):
        DiagnosticsConfig(**{field: value})  # type: ignore[arg-type]  # no field named here is an int


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_the_flush_budget_is_finite_and_may_be_0(value: float) -> None:
    assert DiagnosticsConfig(flush_budget_s=0).flush_budget_s == 0
    with pytest.raises(ValueError, match=f"flush_budget_s must be finite and not negative, not {value}"):
        DiagnosticsConfig(flush_budget_s=value)


@pytest.mark.parametrize("value", [0, -5])
def test_at_least_one_event_may_wait(value: int) -> None:
    with pytest.raises(ValueError, match="events_waiting_max must be finite and above 0"):
        DiagnosticsConfig(events_waiting_max=value)
