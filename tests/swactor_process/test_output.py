"""Bytes to lines, and the last bytes of a stream."""

import time

from hypothesis import given
from hypothesis import strategies as st

from swactor_process import LinePart
from swactor_process.output import Cut, LineSplitter, Piece, Tail


def split(chunks: list[bytes], line_max_bytes: int = 1_000) -> list[Cut]:
    splitter = LineSplitter(line_max_bytes)
    return [cut for chunk in chunks for cut in splitter.feed(chunk)] + splitter.end()


def pieces_of(cuts: list[Cut]) -> list[Piece]:
    """Whole lines as pieces, too."""
    pieces: list[Piece] = []
    for cut in cuts:
        pieces += [cut] if isinstance(cut, Piece) else map(Piece, cut[:-1].split(b"\n"))
    return pieces


def test_lines_do_not_depend_on_how_they_arrive() -> None:
    assert split([b"on", b"e\ntwo", b"\n\n"]) == [b"one\n", b"two\n\n"]


def test_a_character_cut_by_a_chunk_or_a_piece_stays_whole_for_people() -> None:
    pieces = pieces_of(split(["äöü\n".encode()], line_max_bytes=3))

    assert [piece.data.decode() for piece in pieces] == ["ä", "ö", "ü"]


def test_an_over_long_rest_is_passed_on_before_its_end_is_known() -> None:
    splitter = LineSplitter(4)

    assert [piece.part for piece in pieces_of(splitter.feed(b"x" * 10))] == [LinePart.FIRST, LinePart.MIDDLE]
    assert splitter.feed(b"y\nz\n") == [Piece(b"xxy", LinePart.LAST), b"z\n"]


def test_a_long_line_takes_as_long_as_its_bytes_however_often_it_goes_on() -> None:
    """If what is there were copied each time, these would be 34 GB."""
    splitter = LineSplitter(1 << 23)
    began_s = time.process_time()

    for _ in range(1 << 14):
        assert splitter.feed(b"x" * 256) == []

    assert time.process_time() - began_s < 1
    assert splitter.feed(b"\n") == [b"x" * (1 << 22) + b"\n"]


def test_an_over_long_rest_without_a_newline_is_marked() -> None:
    *_, last = pieces_of(split([b"x" * 10], line_max_bytes=4))

    assert (last.part, last.terminated) == (LinePart.LAST, False)


@given(st.lists(st.text("ab\n\xe4", max_size=12).map(str.encode), max_size=8), st.integers(1, 5))
def test_no_byte_is_lost_or_invented(chunks: list[bytes], line_max_bytes: int) -> None:
    pieces = pieces_of(split(chunks, line_max_bytes))

    ends = {LinePart.WHOLE, LinePart.LAST}
    again = b"".join(
        piece.data + (b"\n" if piece.part in ends and piece.terminated else b"") for piece in pieces
    )
    assert again == b"".join(chunks)
    assert all(len(piece.data) <= line_max_bytes for piece in pieces)
    openings = [piece.part for piece in pieces if piece.part is not LinePart.MIDDLE]
    assert openings.count(LinePart.FIRST) == openings.count(LinePart.LAST)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 9))
def test_lines_that_are_short_enough_stay_together_and_others_are_cut(
    sizes: list[int], line_max_bytes: int
) -> None:
    data = b"".join(b"x" * size + b"\n" for size in sizes)

    together = split([data], line_max_bytes) == [data]

    assert together is (max(sizes) <= line_max_bytes)


@given(st.lists(st.binary(max_size=9), max_size=20), st.integers(0, 8))
def test_a_tail_is_the_last_bytes(chunks: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for chunk in chunks:
        tail.feed(chunk)

    whole = b"".join(chunks)
    assert tail.text() == whole[max(0, len(whole) - limit) :].decode("utf-8", "replace")
