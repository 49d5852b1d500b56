"""The README must be true: its first example runs, and what it names exists."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


OWNER, INTROSPECTOR = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def test_the_examples_print_what_it_says() -> None:
    prose = README.replace("\n", " ")
    promised = re.search(r"It prints `(.*?)` and `(.*?)`\.", prose)
    assert promised is not None
    assert re.sub(r"[\d.]+ s", "0.0 s", output_of(OWNER)).splitlines() == list(promised.groups())
    assert f"It prints `{output_of(INTROSPECTOR).strip()}`." in prose


def output_of(example: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=30, check=True, cwd=ROOT
    )
    return done.stdout


def test_the_example_lets_its_child_tidy_up_on_ctrl_c(tmp_path: Path) -> None:
    tidies = f"trap 'echo tidy > {tmp_path}/left; exit 0' TERM; echo hello; while :; do sleep 0.02; done"
    example = OWNER.replace("echo hello; exit 3", tidies)
    assert example != OWNER
    with subprocess.Popen(
        [sys.executable, "-u", "-c", INTERRUPTIBLE + example],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"it said: hello\n"
        program.send_signal(signal.SIGINT)
        program.wait(timeout=30)

    assert (tmp_path / "left").read_text() == "tidy\n"


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make (\w+)(?![\w=])", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_a_page_links_to_exists(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_a_page_names_exists(page: Path) -> None:
    folders = "swactor|swactor_process|swactor_diag|sim|tests|benches|examples|docs"
    file_or_folder = rf"`((?:{folders})/(?:[\w./-]*\.(?:py|toml)|[\w/]*/)?)`"
    for path in re.findall(file_or_folder, page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
