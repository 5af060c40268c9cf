"""A YAML or JSON document as a tree with source positions, and a collector of problems.

``yaml.safe_load`` drops line numbers and silently keeps the last of two equal keys. Here the document is only composed
(nodes with marks, nothing constructed), keys stay in order with duplicates reported, and every scalar keeps its raw
text so that a store called ``on`` or ``2024`` is a name, not a boolean or a number. A mapping without a file (a
parameter of a Dag) becomes the same tree, with paths instead of lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from statecore.errors import Invalid

SCALAR, MAPPING, LIST = "scalar", "mapping", "list"
_MAX_LEVELS = 50
"""Maximum nesting: a spec has seven levels, and composing recurses, in native code too."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Node:
    """One node of the document.

    Attributes:
        shape: ``scalar``, ``mapping`` or ``list``.
        path: its path from the root: ``subtopologies.0.stores.orders.kind``.
        line: line in the file from 1, or 0 without a file.
        column: column from 1.
        text: a scalar's text as written; ``None`` for null.
        value: a scalar's typed value (``"8"`` quoted is a string, ``8`` an integer).
        fields: a mapping's ``(key node, value node)``, in order, first of equal keys only.
        items: a list's items.
    """

    shape: str
    path: str
    line: int
    column: int
    text: str | None = None
    value: Any = None
    fields: Mapping[str, tuple[Node, Node]] = field(default_factory=dict)
    items: tuple[Node, ...] = ()

    @property
    def found(self) -> str:
        """Description of the node, for "found ..."."""
        if self.shape == MAPPING:
            return "a mapping" if self.fields else "an empty mapping"
        if self.shape == LIST:
            return "a list"
        return "nothing" if self.text is None else f"'{self.text}'"


class Problems:
    """All problems of one document, so that a person can fix them at once."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: list[tuple[int, int, str]] = []
        self._variables: list[str] = []

    def add(self, node: Node, message: str, *, variable: str | None = None) -> None:
        """Record a problem at a node; ``variable`` names a missing environment variable of an otherwise valid spec."""
        if variable is not None:
            self._variables.append(variable)
        where = f"{self.source}:{node.line}:{node.column}" if node.line else f"{self.source}"
        at = f"{node.path}: " if node.path else ""
        self._found.append((node.line, node.column, f"{where}: {at}{message}"))

    def expected(self, node: Node, expectation: str) -> None:
        """Record that the node is not what was expected."""
        self.add(node, f"found {node.found}, expected {expectation}")

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def lines(self) -> list[str]:
        return [message for _, _, message in sorted(self._found, key=lambda problem: problem[:2])]

    def raise_if_any(self) -> None:
        """Raise one ``Invalid`` with all problems, if there are any."""
        if not self._found:
            return
        lines = self.lines
        head = f"{self.source} has a problem" if len(lines) == 1 else f"{self.source} has {len(lines)} problems"
        raise Invalid(
            f"{head}:\n  " + "\n  ".join(lines) + "\n",
            code="environment-variable-missing" if self._lacks_variables_only else "spec-invalid",
            action=self._action(),
            problems=lines,
        )

    @property
    def _lacks_variables_only(self) -> bool:
        return len(self._variables) == len(self._found)

    def _action(self) -> str:
        if not self._lacks_variables_only:
            return "Correct the spec; nothing was changed."
        return (
            f"Set {', '.join(dict.fromkeys(self._variables))} where the job runs; nothing was changed. In Airflow the "
            "connection kafka_<application id>, or that of STATECORE_KAFKA_CONN, provides KAFKA_USERNAME (its login), "
            "KAFKA_PASSWORD, and KAFKA_<NAME> for each name of its extra (docs/airflow.md)."
        )


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def tree_of_text(text: str, problems: Problems) -> Node:
    try:
        _refuse_depth(text, problems)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = " ".join(part for part in (error.context, error.problem) if part)
        stray = _stray_quote(text)
        if stray is not None:
            reason = f"this quote has no partner on its line ({reason}, line {line}, column {column})"
            line, column = stray
        problems.add(Node(SCALAR, "", line, column), f"this is not YAML: {reason}")
        problems.raise_if_any()
        raise AssertionError("unreachable") from error
    except yaml.YAMLError as error:
        problems.add(Node(SCALAR, "", 1, 1), f"this is not YAML: {error}")
        problems.raise_if_any()
        raise AssertionError("unreachable") from error
    if root is None:
        empty = Node(SCALAR, "", 1, 1)
        problems.add(empty, "found an empty file, expected a mapping that begins with 'application_id:'")
        problems.raise_if_any()
    budget = [20_000]
    tree = _convert(root, "", problems, (), budget)
    if budget[0] < 0:
        problems.add(Node(SCALAR, "", 1, 1), "the document is too large for a spec (aliases that multiply?)")
        problems.raise_if_any()
    return tree


_QUOTED = re.compile(r"""(?:^|(?<=[\s:,{\[]))(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(?:^|(?<=\s))#.*""")


def _stray_quote(text: str) -> tuple[int, int] | None:
    """Line and column of the first quote without a partner on its line."""
    for number, line in enumerate(text.splitlines(), 1):
        rest = _QUOTED.sub(lambda match: " " * len(match[0]), line)
        found = re.search(r"""\"|(?<=[\s:,{\[])'""", rest)
        if found is not None:
            return number, found.start() + 1
    return None


def _refuse_depth(text: str, problems: Problems) -> None:
    """Refuse a text that is nested too deeply to be composed; parsing its events does not recurse."""
    level = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if level > _MAX_LEVELS:
                mark = event.start_mark
                _too_deep(
                    Node(SCALAR, "", mark.line + 1, mark.column + 1) if mark else Node(SCALAR, "", 1, 1), problems
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1


def _too_deep(node: Node, problems: Problems) -> None:
    problems.add(node, f"the document is nested too deeply, expected at most {_MAX_LEVELS} levels")
    problems.raise_if_any()


def _convert(node: Any, path: str, problems: Problems, above: tuple[int, ...], budget: list[int]) -> Node:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    budget[0] -= 1
    if id(node) in above:
        problems.add(Node(SCALAR, path, line, column), "found an alias to something that contains it")
        problems.raise_if_any()
    if budget[0] < 0:
        return Node(SCALAR, path, line, column)
    if len(above) > _MAX_LEVELS:  # by aliases
        _too_deep(Node(SCALAR, path, line, column), problems)
    inside = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        fields: dict[str, tuple[Node, Node]] = {}
        for key_node, value_node in node.value:
            key = _convert(key_node, path, problems, inside, budget)
            name = key.text if key.shape == SCALAR and key.text is not None else None
            if name is None:
                problems.expected(key, "a name as the key")
                continue
            here = f"{path}.{name}" if path else name
            value = _convert(value_node, here, problems, inside, budget)
            if name in fields:
                problems.add(key, f"duplicate key '{name}' (first on line {fields[name][0].line})")
            else:
                fields[name] = (key, value)
        return Node(MAPPING, path, line, column, fields=fields)
    if isinstance(node, yaml.SequenceNode):
        items = tuple(
            _convert(item, f"{path}[{index}]", problems, inside, budget) for index, item in enumerate(node.value)
        )
        return Node(LIST, path, line, column, items=items)
    if node.tag == "tag:yaml.org,2002:null":
        return Node(SCALAR, path, line, column)
    return Node(SCALAR, path, line, column, text=node.value, value=_typed(node))


def _typed(node: Any) -> Any:
    """A scalar as boolean, integer, float or string; other types (dates, binary) stay text."""
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind in ("bool", "int", "float"):
        return typed_value(node.value)
    return node.value


def typed_value(text: str) -> Any:
    """The boolean, integer or float that YAML reads in a text, else the text."""
    try:
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError):
        return text
    return value if isinstance(value, (bool, int, float)) else text


def tree_of_mapping(value: Any, problems: Problems, path: str = "", level: int = 0) -> Node:
    """The tree of nested dicts, lists and scalars from JSON or from code."""
    if level > _MAX_LEVELS:
        _too_deep(Node(SCALAR, path, 0, 0), problems)
    if isinstance(value, Mapping):
        fields: dict[str, tuple[Node, Node]] = {}
        for key, part in value.items():
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                problems.expected(Node(SCALAR, path, 0, 0, text=str(key)), "a name as the key")
                continue
            name = str(key)
            here = f"{path}.{name}" if path else name
            fields[name] = (
                Node(SCALAR, path, 0, 0, text=name, value=key),
                tree_of_mapping(part, problems, here, level + 1),
            )
        return Node(MAPPING, path, 0, 0, fields=fields)
    if isinstance(value, (list, tuple)):
        items = tuple(
            tree_of_mapping(part, problems, f"{path}[{index}]", level + 1) for index, part in enumerate(value)
        )
        return Node(LIST, path, 0, 0, items=items)
    if value is None:
        return Node(SCALAR, path, 0, 0)
    if isinstance(value, bool):
        return Node(SCALAR, path, 0, 0, text="true" if value else "false", value=value)
    return Node(SCALAR, path, 0, 0, text=str(value), value=value)
