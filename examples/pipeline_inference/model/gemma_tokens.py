"""The tokenizer of Gemma, from the vocabulary inside its file.

Owns: text to tokens by merging, best score first, as SentencePiece's byte pair encoding does (Kudo and
Richardson 2018), and tokens to bytes. No blank is put before a text; each begins with the token for that.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
"""What the vocabulary writes for a blank."""
CONTROL, USER_DEFINED, BYTE = 3, 4, 6
"""Kinds of tokens: without text; taken whole wherever it occurs; one byte of what has no token."""


class SentencePieces:
    """The vocabulary."""

    def __init__(
        self,
        pieces: Sequence[str],
        scores: Sequence[float],
        kinds: Sequence[int],
        *,
        begin: int,
        ends: Iterable[int],
    ) -> None:
        self._pieces, self._scores, self._kinds = pieces, scores, kinds
        self._begin, self._ends = begin, frozenset(ends)
        self._tokens: Mapping[str, int] = {piece: token for token, piece in enumerate(pieces)}
        whole = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == USER_DEFINED and piece]
        self._whole = sorted(whole, key=len, reverse=True)

    @classmethod
    def read(cls, reader: Any) -> "SentencePieces":
        """Return the vocabulary in the file of a `gguf.GGUFReader`."""

        def numbers(name: str) -> list[Any]:
            field = reader.fields[f"tokenizer.ggml.{name}"]
            return [field.parts[at][0] for at in field.data]

        texts = reader.fields["tokenizer.ggml.tokens"]
        pieces = [bytes(texts.parts[at]).decode() for at in texts.data]
        (begin,), (end,) = numbers("bos_token_id"), numbers("eos_token_id")
        ends = {int(end), pieces.index("<end_of_turn>")}
        return cls(pieces, numbers("scores"), numbers("token_type"), begin=int(begin), ends=ends)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of ``text``, the one that every text begins with included."""
        tokens = [self._begin]
        for part in self._parts(text):
            tokens.extend([part] if isinstance(part, int) else self._merged(part.replace(" ", BLANK)))
        return tokens

    def piece(self, token: int) -> bytes:
        """Return what ``token`` adds to the text."""
        kind, piece = self._kinds[token], self._pieces[token]
        if kind == CONTROL:
            return b""
        return bytes([int(piece[1:-1], 16)]) if kind == BYTE else piece.replace(BLANK, " ").encode()

    def is_end(self, token: int) -> bool:
        """Return whether ``token`` ends the text, or what one speaker says."""
        return token in self._ends

    def _parts(self, text: str) -> list[str | int]:
        """Cut out, longest first, what is a token of its own wherever it occurs."""
        parts: list[str | int] = [text]
        for piece in self._whole:
            if piece in text:
                parts = [found for part in parts for found in _cut(part, piece, self._tokens[piece])]
        return parts

    def _merged(self, text: str) -> Iterator[int]:
        """Merge neighbours, the best pair of all first, the left one of equals, until no pair is a token."""
        parts = list(text)
        after = [*range(1, len(parts)), -1]
        before = list(range(-1, len(parts) - 1))
        waiting: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                pair = parts[left] + parts[right]
                token = self._tokens.get(pair)
                if token is not None:
                    heapq.heappush(waiting, (-self._scores[token], left, right, pair))

        for at in range(len(parts) - 1):
            propose(at, at + 1)
        while waiting:
            _, left, right, pair = heapq.heappop(waiting)
            if not parts[left] or not parts[right] or parts[left] + parts[right] != pair:
                continue  # one of the two was merged with somebody else meanwhile
            parts[left], parts[right] = pair, ""
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        for part in filter(None, parts):
            token = self._tokens.get(part)
            yield from [token] if token is not None else self._bytes(part)

    def _bytes(self, character: str) -> Iterator[int]:
        return (self._tokens[f"<0x{byte:02X}>"] for byte in character.encode())


def _cut(part: str | int, piece: str, token: int) -> Iterator[str | int]:
    """Yield ``part`` with ``piece`` replaced by its token; a part that is a token already stays one."""
    if isinstance(part, int):
        yield part
        return
    for number, rest in enumerate(part.split(piece)):
        if number:
            yield token
        if rest:
            yield rest
