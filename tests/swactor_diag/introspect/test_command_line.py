"""Command lines: bounded, on one line, without secrets."""

import time

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
        (("run", "--tokens-per-second", "5"), "run --tokens-per-second 5"),
        (("run", "--max_tokens=512", "--tokenizer", "gpt2"), "run --max_tokens=512 --tokenizer gpt2"),
        (("run", "--token", "12345678"), "run --token ***"),
        (("run", "--pass", "abc", "--bypass", "abc"), "run --pass *** --bypass abc"),
        (("run", "--token=a b"), "run --token=***"),
        (
            ("sh", "-c", "cd /x && API_KEY=abc ./run --token abc -v"),
            "sh -c cd /x && API_KEY=*** ./run --token *** -v",
        ),
        (("sh", "-c", "run --password 'a b'"), "sh -c run --password ***"),
        (("curl", "-H", "Authorization: Bearer abc"), "curl -H Authorization: ***"),
        (("run", '{"api_key": "abc", "n": 1}'), 'run {"api_key": ***, "n": 1}'),
        (("curl", "https://host/x?access_token=abc&n=1"), "curl https://host/x?access_token=***&n=1"),
        (("curl", "https://me:p@ss@host/x@y"), "curl https://***@host/x@y"),
        (("login", "hf_" + "a1" * 17), "login ***"),
        (("run", "http://token-service:8080/x"), "run http://token-service:8080/x"),
        (("curl", "-H", "Authorization:Bearer abcdef"), "curl -H Authorization:***"),
        (("curl", "-HX-Api-Key:abc"), "curl -HX-Api-Key:***"),
        (("curl", "-H", "Authorization: token abcdef"), "curl -H Authorization: ***"),
        (("curl", "-H", "Cookie: theme=dark; session=SECRET"), "curl -H Cookie: ***"),
        (("curl", '-HAuthorization: Digest realm="a", response=SECRET'), "curl -HAuthorization: ***"),
        (
            ("sh", "-c", "curl -H 'Authorization: Digest realm=\"a\", response=SECRET' https://host/x"),
            "sh -c curl -H 'Authorization: ***' https://host/x",
        ),
        (("sh", "-c", 'curl -H "Cookie: a=1; b=\\"2\\"" x'), 'sh -c curl -H "Cookie: ***" x'),
        (("sh", "-c", "A=1 PASSWORD=ab,cd run"), "sh -c A=1 PASSWORD=*** run"),
        (("sh", "-c", "A=1 PASSWORD='a b'cd run"), "sh -c A=1 PASSWORD=*** run"),
        (("sh", "-c", "echo password = abc; run"), "sh -c echo password = ***; run"),
        (("run", '{"api_key": "a\\"bc", "n": 1}'), 'run {"api_key": ***, "n": 1}'),
        (("run", '{"passwords": ["abc", "def"]}'), 'run {"passwords": ***'),
        (("run", '{"max_tokens": 512}'), 'run {"max_tokens": 512}'),
        (("pytest", "tests/test_token.py::test_x", "test_token.py::test_x"), None),
        (("docker", "-v", "/run/secrets:/run/secrets:ro"), None),
        (("a\nb\x1b[31m",), "a�b�[31m"),
        ((), ""),
    ],
)
def test_what_is_shown(arguments: tuple[str, ...], shown: str | None) -> None:
    """A table: arguments, and how they are shown; None where nothing of them is secret."""
    assert readable_command(arguments) == (" ".join(arguments) if shown is None else shown, False)


def test_fc032_a_last_argument_that_does_not_fit_is_dropped() -> None:
    assert readable_command(("python", "x" * 300)) == ("python…", True)


def test_fc032_a_first_argument_that_does_not_fit_is_cut_between_characters() -> None:
    text, cut = readable_command(("ä" * 200,), bytes_max=5)
    assert (text, cut) == ("ää…", True)


def test_fc032_padding_is_no_argument() -> None:
    assert split_cmdline("title\0\0\0\0") == ("title",)
    assert split_cmdline("\0\0") == ()
    assert split_cmdline("a\0\0b\0") == ("a", "", "b")


def test_no_argument_however_odd_holds_up_the_loop() -> None:
    odd = [
        "a" * 200_000,
        "-" * 200_000,
        "--token" * 30_000,
        "token=" * 30_000,
        "token:" * 30_000,
        "token " * 30_000,
        "token" + " " * 200_000,
        '"token: \\' * 30_000,
        "://" + "a:" * 100_000,
    ]
    took = []
    for argument in odd:
        began = time.process_time()
        readable_command((argument,))
        took.append(time.process_time() - began)
    assert max(took) < 0.1
