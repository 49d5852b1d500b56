"""What becomes of the bytes of one stream that this node reads, as its output policy says. Pure.

Owns: the effects that bytes bring about, by policy; which stream has a tail.
Not here: cutting lines, remembering a tail (``output``).
"""

from swactor_process._effects import AnnounceChunks, AnnounceLines, AnnouncePiece, WriteFile
from swactor_process.output import Cut, LineSplitter, Tail
from swactor_process.spec import Chunks, Lines, ProcessSpec, Stream, ToFile

StreamEffect = AnnounceLines | AnnouncePiece | AnnounceChunks | WriteFile


class StreamReader:
    """One stream of one child. Memory: one unfinished line and the tail."""

    def __init__(self, spec: ProcessSpec, stream: Stream) -> None:
        policy = spec.policy(stream)
        self._stream = stream
        self._tail = Tail(spec.tail_bytes) if stream is Stream.STDERR else None
        self._splitter = LineSplitter(policy.line_max_bytes) if isinstance(policy, Lines) else None
        self._chunk_max = policy.chunk_max_bytes if isinstance(policy, Chunks) else None
        self._to_file = isinstance(policy, ToFile)

    def feed(self, data: bytes) -> list[StreamEffect]:
        """Return what ``data`` brings about."""
        if self._tail is not None:
            self._tail.feed(data)
        if self._splitter is not None:
            return self._told(self._splitter.feed(data))
        if self._chunk_max is not None:
            starts = range(0, len(data), self._chunk_max)
            return [AnnounceChunks(self._stream, [data[at : at + self._chunk_max] for at in starts])]
        return [WriteFile(self._stream, data)] if self._to_file else []

    def end(self) -> list[StreamEffect]:
        """Return what the end of the stream brings about: its rest."""
        return [] if self._splitter is None else self._told(self._splitter.end())

    def _told(self, cuts: list[Cut]) -> list[StreamEffect]:
        return [
            AnnounceLines(self._stream, cut) if isinstance(cut, bytes) else AnnouncePiece(self._stream, cut)
            for cut in cuts
        ]

    def tail(self) -> str:
        """Return the last bytes, for people; nothing for a stream that keeps none."""
        return "" if self._tail is None else self._tail.text()
