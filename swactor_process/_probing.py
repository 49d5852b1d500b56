"""Asks the surroundings of a child whether it is ready.

Owns: what is asked for which rule, what was there before the start, one question at a time.
Not here: when to ask (``_readiness``), how it is found out (``host``).
"""

from collections.abc import Callable, Hashable
from pathlib import PurePath

from swactor.abc import Cancellable
from swactor_process.spec import ProcessSpec, ReadyOnFile, ReadyOnPort
from swactor_process.surroundings import Surroundings


class Prober:
    """Asks for the rule of ``spec``; does nothing for a rule that needs no asking."""

    def __init__(
        self, spec: ProcessSpec, surroundings: Surroundings, on_answer: Callable[[bool], None]
    ) -> None:
        self._spec, self._surroundings = spec, surroundings
        self._on_answer = on_answer
        self._before: Hashable = None
        self._asking: Cancellable | None = None

    def before_start(self) -> None:
        """Take note of what is there already: a file of an earlier child says nothing about this one."""
        if isinstance(self._spec.readiness, ReadyOnFile):
            self._before = self._mark(self._spec.readiness)

    def ask(self) -> None:
        """Find out, and answer once, unless `stop` comes first."""
        self.stop()
        match self._spec.readiness:
            case ReadyOnPort(port=port, host=host):
                self._asking = self._surroundings.try_port(host, port, self._on_answer)
            case ReadyOnFile() as rule:
                self._on_answer(self._mark(rule) not in {None, self._before})
            case _:
                pass

    def stop(self) -> None:
        """Want no answer any more."""
        if self._asking is not None:
            asking, self._asking = self._asking, None
            asking.cancel()

    def _mark(self, rule: ReadyOnFile) -> Hashable:
        return self._surroundings.file_mark(str(PurePath(self._spec.cwd or ".") / rule.path))
