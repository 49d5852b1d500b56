"""Random trees of actors under random sequences of everything that may happen to them."""

import asyncio
import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from .checks import check_end, check_rest
from .nodes import make
from .script import Spawn, Tree, from_outside, trees
from .world import World

LONGEST_S = 3_600.0


class Trees(RuleBasedStateMachine):
    """Actions from outside pile up, then happen at once; time passes, or the loop turns a little."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = World(make)
        self.planned: list[object] = []
        self.has_failed = False
        self.runner.get_loop().set_exception_handler(self._note_error)
        self.runner.run(self.world.system.__aenter__())

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self.world.violated(f"the loop was told {context}")

    async def _perform_planned(self) -> None:
        planned, self.planned = self.planned, []
        for action in planned:
            self.world.perform(action)

    async def _turn(self, turns: int) -> None:
        await self._perform_planned()
        for _ in range(turns):
            await asyncio.sleep(0)

    async def _advance(self, seconds: float) -> None:
        await self._perform_planned()
        await self.world.clock.advance(seconds)

    async def _rest(self) -> None:
        await self._perform_planned()
        await self.world.clock.settle()
        while (due_s := self.world.clock.next_due_s) is not None:
            assert due_s < LONGEST_S, due_s
            await self.world.clock.advance(due_s)

    async def _shut_down(self) -> None:
        await self._perform_planned()
        await self.world.clock.run(self.world.shut_down())

    @initialize(plants=st.lists(trees(2), min_size=1, max_size=4))
    def plant(self, plants: list[Tree]) -> None:
        self.planned.extend(Spawn(tree) for tree in plants)
        self.runner.run(self._turn(2))

    @rule(actions=st.lists(from_outside, min_size=1, max_size=6))
    def plan(self, actions: list[object]) -> None:
        self.planned.extend(actions)

    @rule(turns=st.integers(0, 4))
    def let_the_loop_turn(self, turns: int) -> None:
        self.runner.run(self._turn(turns))
        self._check()

    @rule(seconds=st.sampled_from([0.0, 0.5, 6.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.runner.run(self._advance(seconds))
        self._check()

    @rule()
    def let_everything_come_to_rest(self) -> None:
        self.runner.run(self._rest())
        check_rest(self.world)
        self._check()

    @rule()
    @precondition(lambda self: not self.world.is_over)
    def shut_down(self) -> None:
        self.runner.run(self._shut_down())
        self._check()

    def teardown(self) -> None:
        try:
            if not self.has_failed:
                self._end()
        finally:
            self.runner.close()

    def _end(self) -> None:
        self.runner.run(self._rest())
        check_rest(self.world)
        self.runner.run(self._shut_down())
        self.runner.run(self._rest())
        check_rest(self.world)
        check_end(self.world)
        self.runner.run(self._check_tasks())
        self._check()
        self._check_garbage()

    async def _check_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            self.world.violated(f"{others} outlive the system")

    def _check_garbage(self) -> None:
        bodies = self.world.bodies
        del self.world
        gc.collect()
        assert [body() for body in bodies if body() is not None] == []

    def _check(self) -> None:
        found, self.has_failed = self.world.violations, bool(self.world.violations)
        assert not found, "\n".join(found)


pytestmark = [
    pytest.mark.timeout(240),  # some ten seconds, on a machine with nothing else to do
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),  # of a strategy, which nobody reads
]
TestTrees = Trees.TestCase
TestTrees.settings = settings(
    max_examples=50,
    stateful_step_count=20,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures are many here; a log of them would keep what they hold, and the garbage is looked at."""
    log = logging.getLogger("swactor")
    log.disabled = True
    gc.freeze()
    yield
    gc.unfreeze()
    log.disabled = False
