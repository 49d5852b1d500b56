"""What a spec refuses, and that it names the input and the rule."""

from pathlib import Path
from typing import Any

import pytest
from rich.pretty import pretty_repr

from swactor_process import (
    Chunks,
    InvalidSpecError,
    Limits,
    Lines,
    ProcessError,
    ProcessSpec,
    ReadyOnFile,
    ReadyOnLine,
    ReadyOnMessage,
    ReadyOnPort,
    SendSignal,
    Stop,
    Stream,
    TailOnly,
    ToFile,
    WhenFull,
    WriteStdin,
)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"program": ""}, "program"),
        ({"program": "a\0b"}, "program"),
        ({"program": "\ud800"}, "program"),
        ({"args": ("fine", "a\0b")}, "args[1]"),
        ({"cwd": ""}, "cwd"),
        ({"cwd": "a\0b"}, "cwd"),
        ({"env": {"": "x"}}, "env['']"),
        ({"env": {"A=B": "x"}}, "env['A=B']"),
        ({"env": {"A": "x\0"}}, "env['A']"),
        ({"label": ""}, "label"),
        ({"label": "two\nlines"}, "label"),
        ({"label": "x" * 201}, "label"),
        ({"grace_s": -1.0}, "grace_s"),
        ({"deadline_s": float("inf")}, "deadline_s"),
        ({"linger_s": float("nan")}, "linger_s"),
        ({"tail_bytes": -1}, "tail_bytes"),
        ({"backlog_bytes": -1}, "backlog_bytes"),
        ({"stdout": ToFile("log"), "stderr": ToFile("log", keep=1)}, "stderr.path"),
        ({"stdout": TailOnly(), "readiness": ReadyOnLine()}, "readiness.stream"),
    ],
)
def test_an_input_that_breaks_a_rule_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        ProcessSpec(**{"program": "p", "label": "l", **changes})

    assert caught.value.field == field
    assert caught.value.rule in str(caught.value)
    assert isinstance(caught.value, ProcessError)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"program": Path("/bin/true")}, "program"),
        ({"program": b"true"}, "program"),
        ({"program": None}, "program"),
        ({"label": 5}, "label"),
        ({"args": "abc"}, "args"),
        ({"args": None}, "args"),
        ({"args": ("a", 1)}, "args[1]"),
        ({"cwd": Path("/tmp")}, "cwd"),
        ({"env": [("A", "b")]}, "env"),
        ({"env": {1: "b"}}, "env[1]"),
        ({"env": {"A": 1}}, "env['A']"),
        ({"stdout": None}, "stdout"),
        ({"stderr": Lines}, "stderr"),
        ({"readiness": ReadyOnMessage}, "readiness"),
        ({"readiness": "listening"}, "readiness"),
        ({"limits": 5}, "limits"),
        ({"cgroup": Limits()}, "cgroup"),
        ({"grace_s": "1"}, "grace_s"),
        ({"linger_s": None}, "linger_s"),
        ({"start_timeout_s": "1"}, "start_timeout_s"),
        ({"tail_bytes": 1.5}, "tail_bytes"),
        ({"mailbox_bytes": None}, "mailbox_bytes"),
        ({"tail_bytes": True}, "tail_bytes"),
        ({"grace_s": True}, "grace_s"),
        ({"stdin": "no"}, "stdin"),
        ({"guarded": 0}, "guarded"),
    ],
)
def test_an_input_of_the_wrong_type_is_named_where_it_is_made_up(changes: dict[str, Any], field: str) -> None:
    """Not everybody has a type checker: later it would fail the owner, or nobody would notice."""
    with pytest.raises(InvalidSpecError) as caught:
        ProcessSpec(**{"program": "p", "label": "l", **changes})

    assert caught.value.field == field


def test_what_was_passed_in_may_be_changed_for_the_next_child() -> None:
    """The start comes later: each child had the environment of the last one."""
    env, args = {"RANK": ""}, ["--rank", ""]
    specs = []
    for rank in ("0", "1"):
        env["RANK"] = args[1] = rank
        specs.append(ProcessSpec(program="p", label="l", args=args, env=env))  # type: ignore[arg-type]

    assert [spec.env for spec in specs] == [{"RANK": "0"}, {"RANK": "1"}]
    assert [spec.command for spec in specs] == [("p", "--rank", "0"), ("p", "--rank", "1")]


def test_parts_of_a_spec_refuse_wrong_types_as_well() -> None:
    wrong: Any = "1"
    for make in (
        lambda: Lines(line_max_bytes=wrong),
        lambda: Lines(when_full="pause"),  # type: ignore[arg-type]
        lambda: Lines(batched=wrong),
        lambda: Chunks(when_full="pause"),  # type: ignore[arg-type]
        lambda: Chunks(chunk_max_bytes=1.5),  # type: ignore[arg-type]
        lambda: ToFile(Path("log")),  # type: ignore[arg-type]
        lambda: ToFile("log", keep=wrong),
        lambda: ReadyOnPort(wrong),
        lambda: ReadyOnFile(Path("f")),  # type: ignore[arg-type]
        lambda: ReadyOnLine(stream="stderr"),  # type: ignore[arg-type]
        lambda: ReadyOnMessage(deadline_s=wrong),
    ):
        with pytest.raises(InvalidSpecError):
            make()


def test_policies_and_commands_refuse_what_cannot_work() -> None:
    with pytest.raises(InvalidSpecError, match="line_max_bytes"):
        Lines(line_max_bytes=0)
    with pytest.raises(InvalidSpecError, match="chunk_max_bytes"):
        Chunks(chunk_max_bytes=0)
    for path, changes, field in (
        ("", {}, "path"),
        ("l", {"max_bytes": 0}, "max_bytes"),
        ("l", {"keep": -1}, "keep"),
    ):
        with pytest.raises(InvalidSpecError, match=field):
            ToFile(path, **changes)
    with pytest.raises(InvalidSpecError, match="regular expression"):
        ReadyOnLine(pattern="(")
    with pytest.raises(InvalidSpecError, match="host: an IP address, not a name"):
        ReadyOnPort(80, host="localhost")
    with pytest.raises(InvalidSpecError, match=r"readiness\.port"):
        ReadyOnPort(0)
    with pytest.raises(InvalidSpecError, match="every_s"):
        ReadyOnFile("f", every_s=0)
    with pytest.raises(InvalidSpecError, match=r"readiness\.path"):
        ReadyOnFile("")
    with pytest.raises(InvalidSpecError, match="deadline_s"):
        ReadyOnMessage(deadline_s=-1)
    number: Any
    for number in (4_711, 9.0, True, "TERM", [9]):
        with pytest.raises(InvalidSpecError, match="number: a signal of this system"):
            SendSignal(number)


def test_only_lines_and_chunks_pause() -> None:
    spec = ProcessSpec(program="p", label="l", stdout=Chunks(when_full=WhenFull.PAUSE), stderr=TailOnly())
    assert spec.pausing() == (Stream.STDOUT,)
    assert ProcessSpec(program="p", label="l").pausing() == ()


def test_only_what_is_read_counts_as_piped() -> None:
    assert ProcessSpec(program="p", label="l").piped() == (Stream.STDOUT, Stream.STDERR)
    assert ProcessSpec(program="p", label="l", stdout=TailOnly()).command == ("p",)


@pytest.mark.parametrize(
    "seconds", [-1, float("nan"), float("inf"), 10**400, "1"], ids=["negative", "nan", "inf", "huge", "text"]
)
@pytest.mark.parametrize("field", ["grace_s", "deadline_s"])
def test_a_stop_refuses_times_that_cannot_be_waited(field: str, seconds: Any) -> None:
    with pytest.raises(InvalidSpecError, match=f"{field}: a finite number of seconds"):
        Stop(**{field: seconds})


def test_a_stop_takes_the_times_of_the_spec_or_any_that_can_be_waited() -> None:
    assert (Stop().grace_s, Stop().deadline_s) == (None, None)
    assert Stop(grace_s=0, deadline_s=1e9).deadline_s == 1e9


@pytest.mark.parametrize("data", ["text", bytearray(b"x"), memoryview(b"x"), None])
def test_only_bytes_that_cannot_change_are_written(data: Any) -> None:
    with pytest.raises(InvalidSpecError, match="data: bytes"):
        WriteStdin(data)


@pytest.mark.parametrize(
    "pattern",
    ["a{99999999999999999999}", "(" * 50_000 + ")" * 50_000, b"ready", None],
    ids=["too large", "too deep", "bytes", "None"],
)
def test_a_pattern_that_cannot_be_compiled_is_refused_however_that_shows(pattern: Any) -> None:
    with pytest.raises(InvalidSpecError, match=r"readiness\.pattern: a regular expression"):
        ReadyOnLine(pattern)


def test_what_is_said_of_a_spec_has_no_secrets() -> None:
    spec = ProcessSpec(program="sh", label="worker", args=("--token", "hunter2"), env={"PASSWORD": "hunter2"})

    assert repr(spec) == "ProcessSpec(program='sh', label='worker')"
    assert pretty_repr(spec) == repr(spec)  # rich asks structs for their fields by itself
