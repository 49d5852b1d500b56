"""Random numbers of a simulated run: one stream a purpose, so that a draw here never shifts a draw there.

Owns: `Substream` (splitmix64 seeded by a hash of its key) and `SimRandom`, the family of one seed. Their
values are pinned by tests: every recorded seed depends on them.
Not here: which purposes exist. Keys go from general to particular: ``("link", "stage-0", "relay")``.
"""

import hashlib

_MASK = (1 << 64) - 1


class Substream:
    """One endless row of numbers; a function of seed and key. Implements `swactor.abc.RandomStream`."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, *key: str) -> None:
        digest = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
        for part in key:
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(4, "little"))
            digest.update(encoded)
        self._state = int.from_bytes(digest.digest(), "little")

    def u64(self) -> int:
        """Return the next 64 bits."""
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """Return an integer in ``0 <= n < bound``; one draw, whatever the bound.

        Raises:
            ValueError: ``bound`` is not in 1 .. 2**64.
        """
        if not 1 <= bound <= 1 << 64:
            raise ValueError(f"bound must be in 1 .. 2**64, not {bound}")
        return (self.u64() * bound) >> 64

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` bytes; one draw per eight."""
        words = (n_bytes + 7) // 8
        return b"".join(self.u64().to_bytes(8, "little") for _ in range(words))[:n_bytes]


class SimRandom:
    """The streams of one seed below a common key. Implements `swactor.abc.Random`.

    ``stream`` starts the row of its key anew each time: who wants to go on keeps the stream.
    """

    def __init__(self, seed: int, *key: str) -> None:
        self._seed = seed
        self._key = key

    def stream(self, *key: str) -> Substream:
        """Return the stream of ``key``, from its beginning."""
        return Substream(self._seed, *self._key, *key)

    def below_key(self, *key: str) -> "SimRandom":
        """Return the family of streams under ``key``."""
        return SimRandom(self._seed, *self._key, *key)
