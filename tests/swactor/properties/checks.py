"""What must hold of a world of actors that is at rest: nothing is under way, no timer is set."""

from .script import GROUPS, NAMES, Supervision
from .world import Address, Life, World


def check_rest(world: World) -> None:
    """Nothing waits for anything, and everybody alive is as well as it may be."""
    for task in world.tasks:
        if not task.done():
            world.violated(f"{task} has not ended")
        elif not task.cancelled() and task.exception() is not None:
            world.violated(f"{task} failed: {task.exception()!r}")
    statistics = world.system.statistics()
    if statistics.ready:
        world.violated(f"{statistics.ready} actors are ready, and have no turn")
    living = {}
    for actor in statistics.actors:
        address = world.at(actor.path)
        living[address.index] = actor
        if (actor.state, actor.depth, actor.handling, actor.oldest_wait_s) != ("running", 0, None, None):
            world.violated(f"{actor} is not at rest")
        if actor.restarts != len(address.lives) - 1:
            world.violated(f"{actor} had {len(address.lives)} lives")
    if sorted(living) != [address.index for address in world.addresses if address.is_alive]:
        world.violated(f"{sorted(living)} live, as the statistics say")
    for address in world.addresses:
        for life in address.lives:
            _check_life(world, life)
        _check_supervision(world, address)
    _check_links(world)
    _check_registry(world)


def _check_life(world: World, life: Life) -> None:
    if not life.is_over:
        for index, watching in life.watching.items():
            if watching.due and world.addresses[index].ended is not None:
                world.violated(f"{life.sender} was not told of the end of n{index}")
        for child in life.children:
            bad = not child.is_supervised and child.is_spawned and child.ended in {"failed", "killed"}
            if bad and child.index not in life.watching:
                world.violated(f"{life.sender} lives, its child {child.name} {child.ended}")
    _check_cause(world, life)


def _check_cause(world: World, life: Life) -> None:
    """Nothing ends without a reason to."""
    for error, culprit in life.errors:
        match error:
            case "BoomError" | "ActorDeadError":
                pass
            case "RestartBudgetSpentError":
                if not isinstance(life.address.tree, Supervision):
                    world.violated(f"{life.sender} has no budget")
            case "ChildFailedError":
                children = [child for child in life.children if child.index == culprit]
                if not children or children[0].ended not in {"failed", "killed"}:
                    world.violated(f"{life.sender} failed by n{culprit}, which is no child that failed")
            case "LinkedActorFailedError":
                if not any(other.is_abnormal for other in _linked(world, life, culprit)):
                    world.violated(f"{life.sender} failed by n{culprit}, which is not linked and failed")
            case _:
                world.violated(f"{life.sender} failed by {error}")
    if life.end == "completed" and not life.may_complete:
        world.violated(f"{life.sender} completed unasked")
    if life.end == "stopped" and not life.address.may_stop and not world.is_over:
        parent = life.address.parent
        if parent is None or (not parent.is_over and not life.address.is_supervised):
            world.violated(f"{life.sender} stopped unasked")
    if life.end == "failed" and not life.failed:
        world.violated(f"{life.sender} failed, and no event said so")


def _linked(world: World, life: Life, index: int | None) -> list[Life]:
    pairs = [pair for pair in world.links if life in pair]
    others = [two if one is life else one for one, two in pairs]
    return [other for other in others if other.address.index == index]


def _check_links(world: World) -> None:
    for (one, two), is_held in world.links.items():
        if is_held:
            for life, other in ((one, two), (two, one)):
                if other.is_over and other.is_abnormal and not life.is_over:
                    world.violated(f"{life.sender} lives, linked to {other.sender}: {other.end}")


def _check_supervision(world: World, address: Address) -> None:
    if not isinstance(address.tree, Supervision) or not address.is_alive or address.life.is_over:
        return
    for child in address.life.children:
        if not child.is_supervised or child.may_stop or child.is_alive or not child.lives:
            continue
        end = child.life.end
        restart = child.tree.restart.value
        if restart == "permanent" or (restart == "transient" and child.life.is_abnormal):
            world.violated(f"{child.name} ({restart}) {end}, and was not started again")


def _check_registry(world: World) -> None:
    for name in NAMES:
        holder = world.names.get(name)
        if world.system.whereis(name) != (holder.ref if holder is not None else None):
            world.violated(f"{name!r} is {world.system.whereis(name)}, not {holder and holder.name}")
    for address in world.addresses:
        is_top = address.parent is None and not address.is_supervised and address.ref is not None
        if is_top and world.system.whereis(address.name) != (address.ref if address.is_alive else None):
            world.violated(f"{address.name} is {world.system.whereis(address.name)}")
    for group in GROUPS:
        members = tuple(world.addresses[index].ref for index in world.groups.get(group, {}))
        if world.system.members(group) != members:
            world.violated(f"{group!r} has {world.system.members(group)}, not {members}")


def check_end(world: World) -> None:
    """The system has shut down: nothing is left, and every message is accounted for."""
    statistics = world.system.statistics()
    if statistics.actors:
        world.violated(f"{statistics.actors} outlive the system")
    if world.clock.next_due_s is not None:
        world.violated(f"a timer is due in {world.clock.next_due_s} s")
    for address in world.addresses:
        if address.is_alive:
            world.violated(f"{address.name} has not stopped")
        if address.lives and address.is_spawned != (address.ended is not None):
            world.violated(f"{address.name} has no pair of events")
    handled = accepted = 0
    for message in world.messages:
        if message.how == "ask":
            if message.outcome is None:
                world.violated(f"{message} has no outcome")
        elif message.how != "timer":
            accepted += message.accepted
            handled += len(message.handled_by)
    lost = accepted - handled - (statistics.dead_letters - world.dead_publications)
    if lost:
        world.violated(f"{lost} messages were lost, of {accepted} that were taken; {handled} were handled")
