"""Topologies as YAML or JSON files, read strictly: every error names the file and the line.

JSON is read as YAML, of which it is a part, so that there is one reader. Only plain values are
made: a tag that names a Python class is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silva.errors import PlanError
from silva.fabric.topology import Capacity, Collective, Device, Link, Topology
from silva.folders import write_file
from silva.plan.arguments import path_of

if TYPE_CHECKING:
    import yaml

_PRESETS = Path(__file__).parent / "presets"
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
             "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}  # fmt: skip
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_RATES = {"B/s": 1.0, "bit/s": 0.125}
_NUMBER = re.compile(r"([0-9.eE+-]*[0-9.])\s*(\S*)")
_LARGEST = 64 << 20
"""Bytes: a larger file is no topology."""
_MOST_DEVICES = 1_000_000


def load(path: str | Path) -> Topology:
    """Reads a topology, and checks all of it."""
    file = path_of("Topology.load(…)", path)
    try:
        if file.stat().st_size > _LARGEST:
            raise PlanError(f"{file} has more than {_LARGEST >> 20} MiB, and is no topology")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{file} is no text: {error.reason} at byte {error.start}") from error
    return parse(text, str(file))


def parse(text: str, file: str) -> Topology:
    """The topology in a text; `file` is named in errors."""
    yaml = _yaml()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise PlanError(f"{file}{_place(mark)}: {problem}") from error
    except RecursionError as error:
        raise PlanError(f"{file}: lists are nested too deep") from error
    if root is None:
        raise PlanError(f"{file} is empty: a topology has devices")
    reader = _Reader(file)
    fields = reader.fields(root, _TOPOLOGY, {"devices"})
    try:
        return Topology(**fields)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error


def save(topology: Topology, path: str | Path) -> Path:
    """Writes a topology as YAML or JSON."""
    file = path_of("Topology.save(…)", path)
    data = {name: value for name, value in _plain(topology).items() if value not in ("", [])}
    if file.suffix == ".json":
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    else:
        yaml = _yaml()
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return write_file(file, text, "The topology is incomplete: free some space, or write elsewhere")


def presets() -> list[str]:
    """The names of the topologies that come with silva."""
    found = _PRESETS.rglob("*.yaml")
    return sorted(str(path.relative_to(_PRESETS).with_suffix("")) for path in found)


def preset(name: str) -> Topology:
    """A topology that comes with silva."""
    if name not in presets():
        raise PlanError(f"there is no preset {name!r}; there are {', '.join(presets())}")
    return load(_PRESETS / f"{name}.yaml")


def _plain(topology: Topology) -> dict[str, Any]:
    """A topology as lists, dicts, texts and numbers."""
    return {
        "source": topology.source,
        "devices": [_without_empty(vars(device)) for device in topology.devices],
        "links": [
            _without_empty(
                {
                    "from": link.source,
                    "to": link.target,
                    "latency": link.latency,
                    "bandwidth": link.bandwidth,
                    "through": list(link.through),
                }
            )
            for link in topology.links
        ],
        "capacities": [dict(vars(capacity)) for capacity in topology.capacities],
        "collectives": [dict(vars(one)) for one in topology.collectives],
    }


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: dict(v) if isinstance(v, Mapping) else v for name, v in fields.items()}
    return {name: value for name, value in plain.items() if value not in (None, "", [], {})}


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise PlanError("files of topologies need PyYAML: pip install 'silva[train]'") from None
    return yaml


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f", line {mark.line + 1}"


Read = Callable[["_Reader", Any], Any]
"""Reads a node of a file."""


@dataclass(frozen=True)
class _Reader:
    """Reads nodes of one file; errors name it and the node's line."""

    file: str

    def fail(self, node: yaml.Node, text: str) -> PlanError:
        return PlanError(f"{self.file}{_place(node.start_mark)}: {text}")

    def fields(
        self, node: yaml.Node, known: Mapping[str, Read], needed: set[str]
    ) -> dict[str, Any]:
        """A mapping, whose keys are all known."""
        if node.id != "mapping":
            raise self.fail(node, f"there should be {', '.join(known)} here, by name")
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value) if key.id == "scalar" else key.id
            if name not in known:
                raise self.fail(key, f"{name!r} is not known here; there are {', '.join(known)}")
            if name in found:
                raise self.fail(key, f"{name!r} stands here twice")
            found[name] = known[name](self, value)
        missing = sorted(needed - found.keys())
        if missing:
            raise self.fail(node, f"{' and '.join(missing)} is missing")
        return found

    def items(self, node: yaml.Node) -> list[yaml.Node]:
        if node.id != "sequence":
            raise self.fail(node, "there should be a list here")
        return list(node.value)

    def text(self, node: yaml.Node) -> str:
        if node.id != "scalar" or node.tag.endswith((":null", ":bool")):
            raise self.fail(node, "there should be a text here")
        _refuse_tags(self, node)
        return str(node.value)

    def whole(self, node: yaml.Node) -> int:
        number = self.amount(node, {})
        if number != int(number):
            raise self.fail(node, f"{node.value} should be a whole number")
        return int(number)

    def amount(self, node: yaml.Node, units: Mapping[str, float]) -> float:
        """A number, or a number with a unit."""
        text = self.text(node).replace("_", "")
        match = _NUMBER.fullmatch(text)
        factor = _factor(match[2], units) if match else None
        try:
            if match is None or factor is None:
                raise ValueError
            return float(match[1]) * factor
        except ValueError:
            like = " or ".join(sorted(units)) or "1"
            raise self.fail(
                node, f"{node.value!r} is no number with a unit such as {like}"
            ) from None


def _factor(unit: str, units: Mapping[str, float]) -> float | None:
    """What one of a unit is in the basic one."""
    if not unit:
        return 1.0
    if unit in units:
        return units[unit]
    for name, factor in units.items():
        prefix = unit.removesuffix(name)
        if unit.endswith(name) and prefix in _PREFIXES and name not in _SECONDS:
            return factor * _PREFIXES[prefix]
    return None


def _refuse_tags(reader: _Reader, node: yaml.Node) -> None:
    if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
        raise reader.fail(node, f"the tag {node.tag} is not allowed")


def _flops(reader: _Reader, node: yaml.Node) -> dict[str, float]:
    if node.id != "mapping":
        raise reader.fail(node, "there should be FLOP/s by dtype here, as {float32: 1e12}")
    return {reader.text(k): reader.amount(v, {"FLOP/s": 1.0}) for k, v in node.value}


def _seconds(reader: _Reader, node: yaml.Node) -> float:
    return reader.amount(node, _SECONDS)


def _rate(reader: _Reader, node: yaml.Node) -> float:
    return reader.amount(node, _RATES)


def _devices(reader: _Reader, node: yaml.Node) -> tuple[Device, ...]:
    """Devices; one with a `count` stands for as many, numbered from 0. Without a `host`, each is
    its own."""
    known: dict[str, Read] = {
        "name": _Reader.text,
        "host": _Reader.text,
        "site": _Reader.text,
        "kind": _Reader.text,
        "memory": lambda reader, value: int(reader.amount(value, {"B": 1.0})),
        "flops": _flops,
        "count": _Reader.whole,
    }
    found: list[Device] = []
    for item in reader.items(node):
        fields = reader.fields(item, known, {"name"})
        name, count = fields.pop("name"), fields.pop("count", None)
        if count is not None and not 0 < count <= _MOST_DEVICES:
            raise reader.fail(item, f"count is {count}, and must be from 1 to {_MOST_DEVICES:,}")
        names = [name] if count is None else [f"{name}{number}" for number in range(count)]
        found += [Device(**{"host": one, **fields, "name": one}) for one in names]
    return tuple(found)


def _links(reader: _Reader, node: yaml.Node) -> tuple[Link, ...]:
    """Links; one with `between` has the same numbers in both directions."""
    known: dict[str, Read] = {
        "from": _Reader.text,
        "to": _Reader.text,
        "between": lambda reader, value: [reader.text(end) for end in reader.items(value)],
        "latency": _seconds,
        "bandwidth": _rate,
        "through": lambda reader, value: tuple(reader.text(x) for x in reader.items(value)),
    }
    found: list[Link] = []
    for item in reader.items(node):
        fields = reader.fields(item, known, {"latency", "bandwidth"})
        between = fields.pop("between", None)
        ends = [fields.pop("from", None), fields.pop("to", None)]
        if ((between is None) == (None in ends) and between is None) or (between and any(ends)):
            raise reader.fail(item, "a link has from and to, or between: [one end, other end]")
        if between is not None and len(between) != 2:
            raise reader.fail(item, f"between names two ends, not {len(between)}")
        source, target = between or ends
        found.append(Link(source, target, **fields))
        if between is not None and source != target:
            found.append(Link(target, source, **fields))
    return tuple(found)


def _capacities(reader: _Reader, node: yaml.Node) -> tuple[Capacity, ...]:
    known: dict[str, Read] = {"name": _Reader.text, "bandwidth": _rate}
    items = reader.items(node)
    return tuple(Capacity(**reader.fields(item, known, {*known})) for item in items)


def _collectives(reader: _Reader, node: yaml.Node) -> tuple[Collective, ...]:
    known: dict[str, Read] = {
        "kind": _Reader.text,
        "ranks": _Reader.whole,
        "latency": _seconds,
        "bandwidth": _rate,
    }
    items = reader.items(node)
    return tuple(Collective(**reader.fields(item, known, {*known})) for item in items)


_TOPOLOGY: dict[str, Read] = {
    "source": _Reader.text,
    "devices": _devices,
    "links": _links,
    "capacities": _capacities,
    "collectives": _collectives,
}
