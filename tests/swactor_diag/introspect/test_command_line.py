"""Command lines: bounded, on one line, without secrets."""

import pytest

from swactor_diag.introspect._command_line import readable_command, split_cmdline


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("python", "w.py"), "python w.py"),
        (("run", "--token=abc"), "run --token=***"),
        (("run", "--api-key", "abc", "x"), "run --api-key *** x"),
        (("run", "--password", "--verbose"), "run --password --verbose"),
        (("env", "AWS_SECRET_ACCESS_KEY=abc", "run"), "env AWS_SECRET_ACCESS_KEY=*** run"),
        (("curl", "https://me:pw@host/x"), "curl https://***@host/x"),
        (("run", "--tokens-per-second", "5"), "run --tokens-per-second ***"),
        (("a\nb\x1b[31m",), "a�b�[31m"),
        ((), ""),
    ],
)
def test_what_is_shown(arguments: tuple[str, ...], shown: str) -> None:
    assert readable_command(arguments) == (shown, False)


def test_fc032_a_last_argument_that_does_not_fit_is_dropped() -> None:
    assert readable_command(("python", "x" * 300)) == ("python…", True)


def test_fc032_a_first_argument_that_does_not_fit_is_cut_between_characters() -> None:
    text, cut = readable_command(("ä" * 200,), bytes_max=5)
    assert (text, cut) == ("ää…", True)


def test_fc032_padding_is_no_argument() -> None:
    assert split_cmdline("title\0\0\0\0") == ("title",)
    assert split_cmdline("\0\0") == ()
    assert split_cmdline("a\0\0b\0") == ("a", "", "b")
