"""What is simulated: nodes, network, programs and faults, read from a TOML file into frozen values.

Owns: the scenario format, and that every broken rule is reported with file, field and rule.
Not here: what a boot function or a program does (named by dotted path, loaded by `load_named`), applying a
fault (`sim.faults`).
"""

import importlib
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from sim.errors import ScenarioError
from sim.network import Edge
from swactor.relay import CloseReason

COLLECTOR = "collector"
"""The host of the collector; it can be cut off like any other."""

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
DURATION_MAX_S = 86_400
Seconds = Annotated[float, Meta(ge=0, le=DURATION_MAX_S)]
DottedPath = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Milliseconds = Annotated[float, Meta(ge=0, le=1000 * DURATION_MAX_S)]
YEARS_10_MS = 10 * 366 * 86_400_000
OffsetMs = Annotated[int, Meta(ge=-YEARS_10_MS, le=YEARS_10_MS)]
EpochMs = Annotated[int, Meta(ge=YEARS_10_MS, le=20 * YEARS_10_MS)]
"""With every offset it is a moment between 1970 and 2181."""
_NODE_ID = re.compile(r"\{node_id:([^{}]*)\}")
Ppm = Annotated[int, Meta(ge=0, le=1_000_000)]


class EdgeSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One-way latency and loss."""

    latency_ms: Milliseconds = 20.0
    jitter_ms: Milliseconds = 5.0
    loss_ppm: Ppm = 0

    def edge(self) -> Edge:
        """Return it in the network's integers."""
        return Edge(
            base_ns=round(self.latency_ms * 1_000_000),
            jitter_ns=round(self.jitter_ms * 1_000_000),
            loss_ppm=self.loss_ppm,
        )


class LinkSpec(EdgeSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The edge between two hosts, in both directions unless ``one_way``."""

    source: Name
    target: Name
    one_way: bool = False


class NodeSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process of the run. ``boot`` is the production function; ``config`` is handed to it.

    Filled in, in ``config`` and ``environ``: ``{run_id}``, ``{relay_url}`` and ``{node_id:NAME}``.
    """

    name: Name
    role: str
    boot: DottedPath
    start_s: Seconds = 0.0
    clock_offset_ms: OffsetMs = 0
    config: dict[str, object] = {}
    environ: dict[str, str] = {}


class RelaySpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The relay that all nodes use."""

    name: Name = "relay"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 7843
    clock_offset_ms: OffsetMs = 0


class ProgramSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a child process does when a node spawns ``program``: a factory for the scripted spawner."""

    program: str
    script: DottedPath


class NodeKill(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="node_kill"
):
    """SIGKILL of a node, of the relay or of the collector: nothing leaves it after this."""

    at_s: Seconds
    node: Name


class HostDown(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="host_down"
):
    """A host neither sends nor receives for ``for_s`` seconds (absent: until the end); its code runs on."""

    at_s: Seconds
    host: Name
    for_s: Seconds | None = None


class ClockJump(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="clock_jump"
):
    """The wall clock of a node is ``offset_ms`` wrong from now on."""

    at_s: Seconds
    node: Name
    offset_ms: OffsetMs


class Cut(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="cut"):
    """Nothing gets from ``source`` to ``target`` for ``for_s`` seconds (absent: until the end)."""

    at_s: Seconds
    source: Name
    target: Name
    one_way: bool = False
    for_s: Seconds | None = None


class PeerPathDown(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="peer_path_down"
):
    """The relay drops what ``source`` sends to ``target``; both tunnels stay up and look healthy."""

    at_s: Seconds
    source: Name
    target: Name
    one_way: bool = False
    for_s: Seconds | None = None


class TunnelClose(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="tunnel_close"
):
    """The relay ends the session of a node."""

    at_s: Seconds
    node: Name
    reason: CloseReason = CloseReason.EVICTED


class ChildKill(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="child_kill"
):
    """A signal from outside hits the child processes of a node that run ``program``."""

    at_s: Seconds
    node: Name
    program: str
    signal: Annotated[int, Meta(ge=1, le=64)] = 9


Fault = NodeKill | HostDown | ClockJump | Cut | PeerPathDown | TunnelClose | ChildKill


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a world is made of, besides the seed."""

    name: Name
    duration_s: Annotated[float, Meta(gt=0, le=DURATION_MAX_S)]
    epoch_ms: EpochMs = 1_700_000_000_000
    network: EdgeSpec = EdgeSpec()
    link: tuple[LinkSpec, ...] = ()
    relay: RelaySpec = RelaySpec()
    node: Annotated[tuple[NodeSpec, ...], Meta(min_length=1)]
    program: tuple[ProgramSpec, ...] = ()
    fault: tuple[Fault, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return the names of all hosts: the collector's, the relay's, the nodes'."""
        return (COLLECTOR, self.relay.name, *(node.name for node in self.node))


def load(path: Path) -> Scenario:
    """Return the scenario in ``path``.

    Raises:
        ScenarioError: the file cannot be read, is not TOML, or breaks a rule.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ScenarioError(str(path), "file", exc.strerror or str(exc)) from exc
    except UnicodeDecodeError as exc:
        raise ScenarioError(str(path), "file", f"is not UTF-8: {exc.reason} at byte {exc.start}") from exc
    return parse(text, file=str(path))


def parse(text: str, *, file: str) -> Scenario:
    """Return the scenario that ``text`` describes; ``file`` is what errors call it.

    Raises:
        ScenarioError: it is not TOML, or breaks a rule.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ScenarioError(file, "file", f"is not TOML: {exc}") from exc
    try:
        scenario = msgspec.convert(table, Scenario)
    except msgspec.ValidationError as exc:
        field, rule = _where(str(exc))
        raise ScenarioError(file, field, rule) from exc
    _check_names(scenario, file)
    _check_links(scenario, file)
    _check_faults(scenario, file)
    return scenario


def load_named(path: str, *, file: str, field: str) -> Callable[..., Any]:
    """Return what the dotted path ``package.module:name`` names. What it takes shows when it is called.

    Raises:
        ScenarioError: there is no such module or name, or it cannot be called.
    """
    module_name, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (Exception, SystemExit) as exc:  # importing it runs what somebody else wrote
        raise ScenarioError(file, field, f"{path} cannot be loaded: {type(exc).__name__}: {exc}") from exc
    if not callable(found):
        raise ScenarioError(file, field, f"{path} is not a function")
    function: Callable[..., Any] = found
    return function


def _where(message: str) -> tuple[str, str]:
    """Split msgspec's message into the field and the rule."""
    found = re.fullmatch(r"(?P<rule>.*) - at `\$\.?(?P<field>.*)`", message, re.DOTALL)
    if found is None:
        return "file", message
    return found["field"] or "file", found["rule"]


def _check_names(scenario: Scenario, file: str) -> None:
    if scenario.relay.name == COLLECTOR:
        raise ScenarioError(file, "relay.name", f"{COLLECTOR!r} is the collector's")
    names = scenario.names()
    nodes = frozenset(node.name for node in scenario.node)
    for number, node in enumerate(scenario.node):
        field = f"node[{number}]"
        if names.count(node.name) > 1:
            raise ScenarioError(file, f"{field}.name", f"{node.name!r} is there twice")
        if node.start_s > scenario.duration_s:
            raise ScenarioError(file, f"{field}.start_s", _after_the_end(scenario))
        _check_node_ids(nodes, file, f"{field}.config", node.config)
        _check_node_ids(nodes, file, f"{field}.environ", node.environ)
    programs = [program.program for program in scenario.program]
    for number, program in enumerate(programs):
        if programs.count(program) > 1:
            raise ScenarioError(file, f"program[{number}].program", f"{program!r} is there twice")


def _check_node_ids(nodes: frozenset[str], file: str, field: str, settings: Mapping[str, object]) -> None:
    for name in _NODE_ID.findall(msgspec.json.encode(settings).decode()):
        if name not in nodes:
            rule = f"{{node_id:{name}}} is no node here; known: {sorted(nodes)}"
            raise ScenarioError(file, field, rule)


def _check_links(scenario: Scenario, file: str) -> None:
    known = frozenset(scenario.names())
    ways: set[tuple[str, str]] = set()
    for number, link in enumerate(scenario.link):
        field = f"link[{number}]"
        _check_pair(known, file, field, link.source, link.target)
        for way in [(link.source, link.target), *([] if link.one_way else [(link.target, link.source)])]:
            if way in ways:
                raise ScenarioError(file, field, f"{way[0]} to {way[1]} is there twice")
            ways.add(way)


def _check_faults(scenario: Scenario, file: str) -> None:
    known = frozenset(scenario.names())
    nodes = frozenset(node.name for node in scenario.node)
    programs = sorted(program.program for program in scenario.program)
    for number, fault in enumerate(scenario.fault):
        field = f"fault[{number}]"
        match fault:
            case Cut():
                _check_pair(known, file, field, fault.source, fault.target)
            case PeerPathDown():
                _check_pair(nodes, file, field, fault.source, fault.target)
            case HostDown():
                _check_known(known, file, field, host=fault.host)
            case NodeKill():
                _check_known(known, file, field, node=fault.node)
            case ClockJump() | TunnelClose():
                _check_known(nodes, file, field, node=fault.node)
            case ChildKill():
                _check_known(nodes, file, field, node=fault.node)
                if fault.program not in programs:
                    rule = f"there is no program {fault.program!r} here; known: {programs}"
                    raise ScenarioError(file, f"{field}.program", rule)
        if fault.at_s > scenario.duration_s:
            raise ScenarioError(file, f"{field}.at_s", _after_the_end(scenario))


def _after_the_end(scenario: Scenario) -> str:
    return f"after the end of the run ({scenario.duration_s} s)"


def _check_pair(known: frozenset[str], file: str, field: str, source: str, target: str) -> None:
    _check_known(known, file, field, source=source, target=target)
    if source == target:
        raise ScenarioError(file, f"{field}.target", f"is the source itself ({source!r})")


def _check_known(known: frozenset[str], file: str, field: str, **names: str) -> None:
    for key, name in names.items():
        if name not in known:
            raise ScenarioError(
                file, f"{field}.{key}", f"there is no host {name!r} here; known: {sorted(known)}"
            )


def filled_text(text: str, words: Mapping[str, str]) -> str:
    """Return ``text`` with every ``{word}`` replaced; other braces stay."""
    for word, meaning in words.items():
        text = text.replace("{" + word + "}", meaning)
    return text


def filled(value: object, words: Mapping[str, str]) -> object:
    """Return ``value`` with all its strings as `filled_text` has them."""
    if isinstance(value, str):
        return filled_text(value, words)
    if isinstance(value, dict):
        return {key: filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, words) for item in value]
    return value
