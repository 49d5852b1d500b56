"""Children that behave in every way there is, commands at random moments, owners that fail: nothing is lost.

The short version of ``make torture``; a fault names the child, and ``--only`` repeats it alone.
"""

from benches.torture import torture
from swactor_process import LinuxSpawner

CHILDREN = 150
AT_ONCE = 64


async def test_fc_080_every_child_has_one_start_and_one_end_and_leaves_nothing_behind() -> None:
    outcome = await torture(LinuxSpawner, range(CHILDREN), seed=7, at_once=AT_ONCE)

    assert outcome.faults == [], str(outcome)
    assert outcome.exits + outcome.refusals == CHILDREN
    assert outcome.exits > CHILDREN / 2
    assert outcome.refusals > 0
