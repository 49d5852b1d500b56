"""The screen of a run: what a person reads while tokens come, and after the summary."""

import io

from rich.console import Console

from examples.pipeline_inference.lines import (
    Answer,
    Prompt,
    RequestFailed,
    StageLoading,
    StageLost,
    Text,
)
from examples.pipeline_inference.screen import RECALLED_MAX, Screen
from swactor.testing import ManualClock

PROMPT = "Tell me a story."
STORY = " Once a node was killed in the middle of a run, and nobody could say why."


class Seen:
    """A screen, and what has been written on it."""

    def __init__(self, *, terminal: bool = True, streams: bool = True, width: int = 30) -> None:
        self.clock = ManualClock()
        self._file = io.StringIO()
        console = Console(file=self._file, force_terminal=terminal, width=width, color_system=None)
        self.screen = Screen(console, self.clock, streams=streams)

    def answer(self, request_id: str = "request-1", *, prompt: str = PROMPT, text: str = STORY) -> None:
        """Answer a prompt, a byte a token."""
        self.screen.speak(Prompt(request_id, prompt))
        for char in text:
            self.screen.speak(Text(request_id, char))
        self.screen.speak(Answer(request_id, text))

    @property
    def text(self) -> str:
        return self._file.getvalue()


def test_on_a_terminal_an_answer_is_broken_between_words_wherever_its_tokens_end() -> None:
    seen = Seen()
    seen.answer()
    lines = seen.text.strip("\n").split("\n")
    assert all(len(line) <= 30 for line in lines)
    assert " ".join(line.strip() for line in lines) == PROMPT + STORY


def test_control_characters_of_a_prompt_and_of_an_answer_do_not_reach_the_terminal() -> None:
    seen = Seen(terminal=False)
    seen.answer(prompt="a\x1b[31mb\r\x07", text=" c\x9b2Jd\te\n")
    seen.screen.recall()
    seen.screen.tell("worker said \x1b[2J")
    assert "a�[31mb�� c�2Jd" in seen.text
    assert not {"\x1b", "\r", "\x07", "\x9b"} & set(seen.text)


def test_a_word_that_is_longer_than_the_line_is_still_shown_whole() -> None:
    seen = Seen(width=10)
    seen.answer(text=" " + "x" * 35 + " end")
    assert "x" * 35 in seen.text
    assert seen.text.endswith("end\n")


def test_a_pipe_gets_every_piece_at_once_and_as_it_is() -> None:
    seen = Seen(terminal=False)
    seen.screen.speak(Prompt("request-1", PROMPT))
    seen.screen.speak(Text("request-1", " On"))
    assert seen.text == f"\n{PROMPT} On"


def test_news_in_the_middle_of_an_answer_begin_on_a_line_of_their_own() -> None:
    seen = Seen(width=200)
    seen.screen.speak(Prompt("request-1", PROMPT))
    seen.screen.speak(Text("request-1", " Once a no"))
    seen.screen.speak(StageLost("stage-1", "worker was killed", gone=False))
    seen.screen.speak(RequestFailed("request-1", "stage-1: worker was killed"))
    assert seen.text.split("\n")[1:4] == [
        "Tell me a story. Once a no",
        "· stage-1: worker was killed; waiting for it to be back",
        "· request-1 failed: stage-1: worker was killed",
    ]


def test_several_answers_at_a_time_are_shown_whole_as_each_is_complete() -> None:
    seen = Seen(streams=False, width=200)
    seen.screen.speak(Prompt("request-1", "Who?"))
    seen.screen.speak(Prompt("request-2", "What?"))
    for request_id, text in (("request-2", " B."), ("request-1", " A."), ("request-2", "")):
        seen.screen.speak(Text(request_id, text))
    seen.screen.speak(Answer("request-2", " B."))
    seen.screen.speak(Answer("request-1", " A."))
    assert seen.text == "\nWhat? B.\n\nWho? A.\n"


def test_the_last_answers_are_shown_again_for_the_summary_has_moved_them_away() -> None:
    seen = Seen(streams=False, width=200)
    for number in range(RECALLED_MAX + 2):
        seen.answer(f"request-{number}", prompt=f"{number}?", text=" Yes.")
    before = len(seen.text)
    seen.screen.recall()
    assert seen.text[before:] == "".join(f"\n{number}? Yes.\n" for number in range(2, RECALLED_MAX + 2))


async def test_the_figures_count_prompts_tokens_and_the_time_from_the_first_prompt_to_the_last_answer() -> (
    None
):
    seen = Seen()
    seen.screen.speak(Prompt("request-1", "Who?"))
    await seen.clock.advance(1.5)
    seen.screen.speak(Text("request-1", " I"))
    seen.screen.speak(Answer("request-1", " I"))
    await seen.clock.advance(9.0)
    assert seen.screen.figures(asked=2) == "1 of 2, 1 tokens in 1.5 s"


async def test_progress_of_loading_is_shown_once_a_second_at_most() -> None:
    seen = Seen(width=200)
    for loaded in range(1, 19):
        seen.screen.speak(StageLoading("stage-0", loaded, 18))
        await seen.clock.advance(0.25)
    assert seen.text.splitlines()[0] == "· stage-0 has loaded 5 of 18 layers"
    assert len(seen.text.splitlines()) == 4
    seen.screen.speak(StageLoading("stage-0", 1, 18))
    assert len(seen.text.splitlines()) == 4, "another worker has begun just now"
