"""The section on what an application recorded: no kind of it is known beforehand, and any number may come."""

from swactor_diag.postproc.load import Node, Run
from swactor_diag.postproc.sections import application
from swactor_diag.schema.events import CLOCK_SAMPLE, IROH_API_MISSING, Custom, Error
from swactor_diag.schema.reading import Record, UnknownEvent

NODE_ID = "0b" * 32
START_MS = 1_779_720_000_000


def run_of(*events: Custom | UnknownEvent | Error) -> Run:
    """Return a run of one node that recorded ``events``, one a second."""
    records = tuple(
        Record(node_id=NODE_ID, monotonic_seq=at, wall_ms=START_MS + 1000 * at, event=event, raw={})
        for at, event in enumerate(events)
    )
    return Run(
        run_id="run-1", manifest=None, nodes=(Node(label="stage-0", node_id=NODE_ID, records=records),)
    )


def answer(number: int, outcome: str) -> UnknownEvent:
    body = {"request": f"r{number}", "asker": f"a{number % 50}", "outcome": outcome, "tokens": 7}
    return UnknownEvent("AnswerSent", body)


def said(run: Run) -> str:
    return application.render(application.rows(run))


def test_declared_and_custom_kinds_are_shown_with_their_fields_and_nodes_by_their_labels() -> None:
    text = said(
        run_of(
            UnknownEvent("AnswerSent", {"to": NODE_ID, "tokens": 7, "why": None}),
            Custom(kind="ready", fields={"layers": [2, 3], "warm": True}),
        )
    )
    assert "- AnswerSent: 1\n- ready: 1\n" in text
    assert "| AnswerSent | stage-0 | 2026-05-25 14:40:00.000 | to stage-0, tokens 7 |" in text
    assert "| ready | stage-0 | 2026-05-25 14:40:01.000 | `layers [2,3], warm true` |" in text


def test_what_swactor_records_itself_is_not_the_applications_and_neither_is_a_value_that_is_newer() -> None:
    rows = application.rows(
        run_of(
            Custom(kind=CLOCK_SAMPLE, fields={}),
            Custom(kind=IROH_API_MISSING, fields={}),
            Error(component="c", message="m"),
            UnknownEvent("SwimTransition", {"to": "Resting"}, "to: Resting"),
        )
    )
    assert rows.kinds == ()
    assert "recorded nothing of its own" in application.render(rows)


def test_values_that_repeat_are_counted_and_names_numbers_and_times_are_not() -> None:
    (row,) = application.rows(run_of(answer(1, "ok"), answer(2, "failed"), answer(3, "ok"))).kinds
    assert row.values == (("outcome", (("ok", 2), ("failed", 1))),)
    assert "- AnswerSent: 3; outcome ok 2, failed 1\n" in said(
        run_of(answer(1, "ok"), answer(2, "failed"), answer(3, "ok"))
    )


def test_of_many_events_the_rare_ones_and_then_the_newest_are_shown_in_the_order_of_time() -> None:
    events = [answer(number, "failed" if number == 17 else "ok") for number in range(500)]
    (row,) = application.rows(run_of(*events)).kinds
    numbers = [str(one.fields["request"]) for one in row.shown]
    newest = [f"r{number}" for number in range(500 - application.SHOWN_MAX + 1, 500)]
    assert numbers == ["r17", *newest]
    assert f"AnswerSent: 500, {application.SHOWN_MAX} of them below; outcome ok 499, failed 1" in said(
        run_of(*events)
    )


def test_a_bundle_with_thousands_of_kinds_does_not_make_a_page_of_thousands_of_lines() -> None:
    events = [Custom(kind=f"kind-{number:04}", fields={"text": "x" * 5000}) for number in range(3000)]
    text = said(run_of(*events))
    assert "- and 2980 more kinds, see Event totals" in text
    assert len(text) < 20_000
