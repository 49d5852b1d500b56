"""Back-pressure: which streams are not read for now, because their owner is behind. Pure.

Owns: that a stop and an exit end it. A child that is to end must not wait for its owner, and after the exit
nobody is left who could wait.
Not here: when the owner is behind (``_outbox``).
"""

from swactor_process._effects import BoundBacklog, Effect, PauseReading, ResumeReading
from swactor_process.spec import ProcessSpec, Stream


class Pausing:
    """The streams of one child that may be paused."""

    def __init__(self, spec: ProcessSpec) -> None:
        self._streams = spec.pausing()
        self._paused: tuple[Stream, ...] = ()

    def pause(self) -> list[Effect]:
        """The owner is behind."""
        self._paused = self._streams
        return [PauseReading(stream) for stream in self._paused]

    def resume(self) -> list[Effect]:
        """The owner has caught up."""
        paused, self._paused = self._paused, ()
        return [ResumeReading(stream) for stream in paused]

    def end(self) -> list[Effect]:
        """From now on everything is read."""
        if not self._streams:
            return []
        self._streams = ()
        return [BoundBacklog(), *self.resume()]
