"""Bytes to lines, and the last bytes of a stream."""

from hypothesis import given
from hypothesis import strategies as st

from swactor_process import LinePart
from swactor_process.output import Line, LineSplitter, Tail


def split(chunks: list[bytes], line_max_bytes: int = 1_000) -> list[Line]:
    splitter = LineSplitter(line_max_bytes)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


def test_lines_do_not_depend_on_how_they_arrive() -> None:
    assert split([b"on", b"e\ntwo", b"\n\n"]) == [Line(b"one"), Line(b"two"), Line(b"")]


def test_a_character_cut_by_a_chunk_or_a_piece_stays_whole_for_people() -> None:
    pieces = split(["äöü\n".encode()], line_max_bytes=3)

    assert b"".join(line.data for line in pieces) == "äöü".encode()
    assert "".join(line.text for line in pieces) == "äöü"


def test_an_over_long_rest_is_passed_on_before_its_end_is_known() -> None:
    splitter = LineSplitter(4)

    assert [line.part for line in splitter.feed(b"x" * 10)] == [LinePart.FIRST, LinePart.MIDDLE]
    assert splitter.feed(b"y\nz\n") == [Line(b"xxy", LinePart.LAST), Line(b"z")]


def test_an_over_long_rest_without_a_newline_is_marked() -> None:
    *_, last = split([b"x" * 10], line_max_bytes=4)

    assert (last.part, last.terminated) == (LinePart.LAST, False)


@given(st.lists(st.text("ab\n\xe4", max_size=12).map(str.encode), max_size=8), st.integers(1, 5))
def test_no_byte_is_lost_or_invented(chunks: list[bytes], line_max_bytes: int) -> None:
    lines = split(chunks, line_max_bytes)

    ends = {LinePart.WHOLE, LinePart.LAST}
    again = b"".join(line.data + (b"\n" if line.part in ends and line.terminated else b"") for line in lines)
    assert again == b"".join(chunks)
    assert all(len(line.data) <= line_max_bytes for line in lines)
    openings = [line.part for line in lines if line.part is not LinePart.MIDDLE]
    assert openings.count(LinePart.FIRST) == openings.count(LinePart.LAST)


@given(st.lists(st.binary(max_size=9), max_size=20), st.integers(0, 8))
def test_a_tail_is_the_last_bytes(chunks: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for chunk in chunks:
        tail.feed(chunk)

    whole = b"".join(chunks)
    assert tail.text() == whole[max(0, len(whole) - limit) :].decode("utf-8", "replace")
