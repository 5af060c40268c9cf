"""How a store's kind is concluded: each thing that was seen leaves some kinds possible, and the rest follows.

Column families, rows, names, records and the topic's configuration are each one :class:`Evidence`. They are taken in
order, the surest first; one that contradicts those before it is not believed, but said. What is then left is the kind,
when it is one; ``?`` when it is several, because a store built as the wrong kind is read without an error, wrongly.

Names that Kafka Streams generates tell most where there is nothing but a topology and topics. The DSL gives them to
stores for which the application passes no supplier, so that ``BuiltInDslStoreSuppliers`` makes them::

    …STATE-STORE-<10 digits>                          timestamped, never plain, versioned or a list: one of a supplier
                                                      has the supplier's name (``MaterializedInternal``)
    KTABLE-…, KSTREAM-TOTABLE-STATE-STORE-…           a key-value store: windows and sessions are aggregates of streams
    KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-…,        the same (``SubscriptionStoreFactory``)
      <name>-subscription-store
    KTABLE-SUPPRESS-STATE-STORE-…                     in memory, always (``KTableImpl.suppress``)
    KSTREAM-(JOIN|OUTER)(THIS|OTHER)-…-store          a window of a stream-stream join (``StreamJoinedStoreFactory``)
    KSTREAM-OUTERSHARED-…-store                       its list of records without a partner
    KSTREAM-(LEFT)JOIN-…-Buffer                       a grace buffer (``RocksDBTimeOrderedKeyValueBuffer``)

Two things no name tells. A store made by these suppliers may be in memory (``dsl.store.suppliers.class``): Kafka
Streams does not look at the directory then. And ``dsl.store.format=HEADERS`` makes each of them one that keeps headers.
Built in the default format it is right in either case: a store with headers opens one without, restores nothing, and
converts what it touches; the other way round the application would not start. So the default is taken, and said.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from statecore.changelog.compaction import cleanup_policies
from statecore.changelog.model import TopicDescription
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind

BUILT = frozenset(kind for kind in StoreKind if kind.can_be_built)
"""Every kind that can lie on disk."""

JOIN_WINDOWS = frozenset({StoreKind.JOIN_WINDOW, StoreKind.HEADERS_WINDOW})
"""What the windows of stream-stream joins are: plain, or with ``dsl.store.format=HEADERS``."""

INDEXED_WINDOWS = frozenset({StoreKind.HEADERS_EMIT_FINAL_WINDOW, StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW})
"""Written alike, so that either name builds the same store (:mod:`statecore.formats.emit_final`)."""

DAY_MS = 86_400_000
"""What Kafka Streams adds to a retention for its changelog (``windowstore.changelog.additional.retention.ms``)."""

BY_FAMILIES = "its column families"
"""How evidence is called that the column families of a store's databases give."""

GRACE_BUFFER_SUFFIX = "-Buffer"
"""How Kafka Streams ends the names of its grace-period buffers (``KStreamImpl.doStreamTableJoin``)."""

_OUTER_JOIN_LIST = re.compile(r"^KSTREAM-OUTERSHARED-[0-9]{10}-store$|-(?:outer|left)-shared-join-store$")
_JOIN_WINDOW = re.compile(r"KSTREAM-(?:JOIN|OUTER)(?:THIS|OTHER)-[0-9]{10}-store$")
_GENERATED = re.compile(r"(?:^|-)STATE-STORE-[0-9]{10}$")
_GENERATED_TABLE = re.compile(r"^(?:KTABLE|KSTREAM-TOTABLE)-(?:[A-Z-]+-)?STATE-STORE-[0-9]{10}$")
_GENERATED_BUFFER = re.compile(r"^KSTREAM-(?:LEFT)?JOIN-[0-9]{10}-Buffer$")
_SUPPRESSION = re.compile(r"^KTABLE-SUPPRESS-STATE-STORE-[0-9]{10}$")
_SUBSCRIPTION_STORE = "-subscription-store"
_SUBSCRIBERS = ("-subscription-receive", "-foreign-join-subscription")
_WINDOWED = re.compile(r"KSTREAM-WINDOWED-[0-9]{10}$")


_IN_DEFAULT_FORMAT = {
    StoreKind.HEADERS_KEY_VALUE: frozenset({StoreKind.TIMESTAMPED_KEY_VALUE}),
    StoreKind.HEADERS_WINDOW: frozenset({StoreKind.TIMESTAMPED_WINDOW, StoreKind.JOIN_WINDOW}),
    StoreKind.HEADERS_SESSION: frozenset({StoreKind.SESSION}),
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: frozenset({StoreKind.EMIT_FINAL_WINDOW}),
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: frozenset({StoreKind.EMIT_FINAL_SLIDING_WINDOW}),
    StoreKind.HEADERS_EMIT_FINAL_SESSION: frozenset({StoreKind.EMIT_FINAL_SESSION}),
}
"""What the DSL makes in the default format where it makes the kind with ``dsl.store.format=HEADERS``."""

_OF_DSL_SUPPLIERS = frozenset(
    kind for kind in (*_IN_DEFAULT_FORMAT, *frozenset().union(*_IN_DEFAULT_FORMAT.values()))
) - {StoreKind.JOIN_WINDOW}
_OF_DSL_TABLES = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE})


class Evidence(NamedTuple):
    """What one observation leaves possible.

    Attributes:
        kinds: the kinds a store may be of, by this alone.
        seen: what was seen, as the end of "because of": "its name", "its topic's retention.ms".
        guess: whether the conclusion is one a person should look at when this decided it.
    """

    kinds: frozenset[StoreKind]
    seen: str
    guess: bool = False


class Conclusion(NamedTuple):
    """What follows.

    Attributes:
        kind: the kind, or ``?``.
        left: the kinds that remain possible.
        remarks: what a person should know of it; empty when it is certain.
        default_format: whether it was decided by taking the default of ``dsl.store.format``.
    """

    kind: StoreKind
    left: frozenset[StoreKind]
    remarks: tuple[str, ...]
    default_format: bool = False


def conclude(evidence: Sequence[Evidence], *, by_dsl: bool = False) -> Conclusion:
    """The kind that is left by all evidence together, taken in order.

    Args:
        evidence: what was seen, the surest first.
        by_dsl: whether the DSL chose the store's class (:func:`is_made_by_dsl`).
    """
    left, remarks = _weighed(evidence)
    default = left
    if by_dsl or left == JOIN_WINDOWS:
        default -= {kind for kind in left if left & _IN_DEFAULT_FORMAT.get(kind, frozenset())}
    defaulted, left = default != left, default
    if left == INDEXED_WINDOWS:
        return Conclusion(StoreKind.HEADERS_EMIT_FINAL_WINDOW, left, tuple(remarks))
    if len(left) == 1:
        return Conclusion(next(iter(left)), left, tuple(remarks), defaulted)
    if len(left) <= 4:
        remarks.append(f"one of {listed(left, 'or')}: nothing here tells which")
    return Conclusion(StoreKind.UNKNOWN, left, tuple(remarks), defaulted)


def possible(evidence: Sequence[Evidence]) -> frozenset[StoreKind]:
    """The kinds that all evidence together leaves, in whatever format of the DSL."""
    return _weighed(evidence)[0]


def _weighed(evidence: Sequence[Evidence]) -> tuple[frozenset[StoreKind], list[str]]:
    left = BUILT
    remarks: list[str] = []
    for one in evidence:
        both = left & one.kinds
        if not both:
            remarks.append(f"{one.seen} would make it {listed(one.kinds)}, which contradicts what else is there")
            continue
        if one.guess and both != left:
            remarks.append(f"{listed(both)} by {one.seen}")
        left = both
    return left, remarks


def is_suppression(store: str) -> bool:
    """Whether a name is one that only ``suppress`` generates, whose buffer is in memory."""
    return _SUPPRESSION.match(store) is not None


def is_made_by_dsl(store: str, processors: Collection[str]) -> bool:
    """Whether the DSL chose the class of a store itself, by its name: the application passed no supplier."""
    return _GENERATED.search(store) is not None or _is_subscription(store, processors)


def _is_subscription(store: str, processors: Collection[str]) -> bool:
    """Whether it is the store of a foreign-key join with a name (``TableJoined.as``); its processors are named too."""
    name = store.removesuffix(_SUBSCRIPTION_STORE)
    return name != store and all(name + suffix in processors for suffix in _SUBSCRIBERS)


def listed(kinds: frozenset[StoreKind], word: str = "or") -> str:
    """Kinds in words."""
    names = sorted(str(kind) for kind in kinds)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def of_name(store: str, processors: Collection[str]) -> list[Evidence]:
    """What the names say that Kafka Streams gives its own stores and processors."""
    lists = _OUTER_JOIN_LIST.search(store) is not None
    found = [Evidence(frozenset({StoreKind.LIST}) if lists else BUILT - {StoreKind.LIST}, "its name")]
    if not store.endswith(GRACE_BUFFER_SUFFIX):
        found.append(Evidence(BUILT - {StoreKind.GRACE_BUFFER}, "its name"))
    if _JOIN_WINDOW.match(store) or any(_WINDOWED.match(processor) for processor in processors):
        found.append(Evidence(JOIN_WINDOWS, "the names in the topology"))
    if any(store == processor + GRACE_BUFFER_SUFFIX for processor in processors):
        guess = not _GENERATED_BUFFER.match(store)
        found.append(Evidence(frozenset({StoreKind.GRACE_BUFFER}), "its name", guess=guess))
    if is_made_by_dsl(store, processors):
        table = _GENERATED_TABLE.match(store) or _is_subscription(store, processors)
        found.append(Evidence(_OF_DSL_TABLES if table else _OF_DSL_SUPPLIERS, "its name"))
    return found


def of_format(store: str, processors: Collection[str], dsl_store_format: str | None) -> list[Evidence]:
    """What the application's ``dsl.store.format`` says of a store whose class the DSL chose."""
    if dsl_store_format is None or not (is_made_by_dsl(store, processors) or _JOIN_WINDOW.match(store)):
        return []
    headers = frozenset(_IN_DEFAULT_FORMAT)
    kinds = headers if dsl_store_format == "HEADERS" else BUILT - headers
    return [Evidence(kinds, f"dsl.store.format={dsl_store_format}")]


def of_topic(topic: TopicDescription) -> list[Evidence]:
    """What a changelog's configuration says (``InternalTopicConfig``); nothing where it is not one of Kafka Streams'.

    ``compact`` are key-value, versioned (with a compaction lag), list stores and grace buffers; ``compact,delete``
    windows and sessions; ``delete`` the windows of stream joins, which keep duplicates.
    """
    policies = cleanup_policies(topic)
    if policies == {"compact"}:
        if versioned_history(topic) is None:
            return [Evidence(BUILT - WINDOWED_KINDS - {StoreKind.VERSIONED_KEY_VALUE}, "its topic's configuration")]
        kinds = frozenset({StoreKind.VERSIONED_KEY_VALUE})
        return [Evidence(kinds, "its topic's min.compaction.lag.ms", guess=True)]
    if policies == {"compact", "delete"}:
        return [Evidence(WINDOWED_KINDS - {StoreKind.JOIN_WINDOW}, "its topic's configuration")]
    if policies == {"delete"}:
        return [Evidence(JOIN_WINDOWS, "its topic's configuration")]
    return []


def versioned_history(topic: TopicDescription) -> int | None:
    """The history retention in ms of a versioned store with this changelog; ``None`` when it is of another store."""
    lag = milliseconds(topic, "min.compaction.lag.ms")
    return lag - DAY_MS if lag is not None and lag >= DAY_MS else None


def window_retention(topic: TopicDescription) -> int | None:
    """The retention in ms of a windowed store with this changelog, or ``None``."""
    retention = milliseconds(topic, "retention.ms")
    known = "delete" in cleanup_policies(topic) and retention is not None and retention >= DAY_MS
    return retention - DAY_MS if known and retention is not None else None


def milliseconds(topic: TopicDescription, name: str) -> int | None:
    """A setting of a topic that is a number, or ``None``."""
    text = topic.configs.get(name, "")
    return int(text) if text.isdigit() else None
