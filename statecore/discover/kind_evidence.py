"""Concludes a store's kind: each piece of evidence leaves some kinds possible.

Column families, rows, names, records and the topic's configuration are each one :class:`Evidence`. They are applied in
order, the most reliable first; one that contradicts those before it is ignored and noted. One remaining kind is the
result; several give ``?``, because a store built as the wrong kind is read wrongly, without an error.

Names that Kafka Streams generates show most if there are only a topology and topics. The DSL gives them to stores for
which the application passes no supplier, so that ``BuiltInDslStoreSuppliers`` creates them::

    …STATE-STORE-<10 digits>                          timestamped, never plain, versioned or a list: a supplier gives
                                                      its own name (``MaterializedInternal``)
    KTABLE-…, KSTREAM-TOTABLE-STATE-STORE-…           a key-value store: windows and sessions are aggregates of streams
    KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-…,        the same (``SubscriptionStoreFactory``)
      <name>-subscription-store
    KTABLE-SUPPRESS-STATE-STORE-…                     in memory, always (``KTableImpl.suppress``)
    KSTREAM-(JOIN|OUTER)(THIS|OTHER)-…-store          a window of a stream-stream join (``StreamJoinedStoreFactory``)
    KSTREAM-OUTERSHARED-…-store                       its list of records without a partner
    KSTREAM-(LEFT)JOIN-…-Buffer                       a grace buffer (``RocksDBTimeOrderedKeyValueBuffer``)

Names do not show two things. A store made by these suppliers may be in memory (``dsl.store.suppliers.class``): Kafka
Streams then ignores the directory. And ``dsl.store.format=HEADERS`` gives each of them a kind that keeps headers.
The default format is right in either case: a store with headers opens one without, restores nothing, and converts rows
that it touches; the other way round the application would not start. So the default is chosen, and noted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from statecore.changelog.cleanup_policy import cleanup_policies
from statecore.changelog.model import TopicDescription
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind

BUILT = frozenset(kind for kind in StoreKind if kind.can_be_built)
"""Every kind that can be on disk."""

JOIN_WINDOWS = frozenset({StoreKind.JOIN_WINDOW, StoreKind.HEADERS_WINDOW})
"""Kinds of the windows of stream-stream joins: plain, or with ``dsl.store.format=HEADERS``."""

INDEXED_WINDOWS = frozenset({StoreKind.HEADERS_EMIT_FINAL_WINDOW, StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW})
"""Kinds with the same rows, so that either builds the same store (:mod:`statecore.formats.emit_final`)."""

DAY_MS = 86_400_000
"""Added by Kafka Streams to a retention for its changelog (``windowstore.changelog.additional.retention.ms``)."""

BY_FAMILIES = "its column families"
"""Name of the evidence of column families."""

GRACE_BUFFER_SUFFIX = "-Buffer"
"""Suffix of the names of Kafka Streams' grace buffers (``KStreamImpl.doStreamTableJoin``)."""

_OUTER_JOIN_LIST = re.compile(r"^KSTREAM-OUTERSHARED-[0-9]{10}-store$|-(?:outer|left)-shared-join-store$")
_JOIN_WINDOW = re.compile(r"KSTREAM-(?:JOIN|OUTER)(?:THIS|OTHER)-[0-9]{10}-store$")
_GENERATED = re.compile(r"(?:^|-)STATE-STORE-[0-9]{10}$")
_GENERATED_TABLE = re.compile(r"^(?:KTABLE|KSTREAM-TOTABLE)-(?:[A-Z-]+-)?STATE-STORE-[0-9]{10}$")
_GENERATED_BUFFER = re.compile(r"^KSTREAM-(?:LEFT)?JOIN-[0-9]{10}-Buffer$")
_SUPPRESSION = re.compile(r"^KTABLE-SUPPRESS-STATE-STORE-[0-9]{10}$")
_SUBSCRIPTION_STORE = "-subscription-store"
_SUBSCRIBERS = ("-subscription-receive", "-foreign-join-subscription")
_WINDOWED = re.compile(r"KSTREAM-WINDOWED-[0-9]{10}$")


_EMIT_FINAL_WINDOWS = frozenset({StoreKind.EMIT_FINAL_WINDOW, StoreKind.EMIT_FINAL_SLIDING_WINDOW})

_IN_DEFAULT_FORMAT = {
    StoreKind.HEADERS_KEY_VALUE: frozenset({StoreKind.TIMESTAMPED_KEY_VALUE}),
    StoreKind.HEADERS_WINDOW: frozenset({StoreKind.TIMESTAMPED_WINDOW, StoreKind.JOIN_WINDOW}),
    StoreKind.HEADERS_SESSION: frozenset({StoreKind.SESSION}),
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: _EMIT_FINAL_WINDOWS,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: _EMIT_FINAL_WINDOWS,
    StoreKind.HEADERS_EMIT_FINAL_SESSION: frozenset({StoreKind.EMIT_FINAL_SESSION}),
}
"""Kind with ``dsl.store.format=HEADERS`` → kinds that the DSL creates in the default format."""

_MISREAD_WITH_HEADERS = frozenset({StoreKind.EMIT_FINAL_SESSION})
"""Kinds in the default format whose rows Kafka Streams converts wrongly."""

_OF_DSL_SUPPLIERS = frozenset(
    kind for kind in (*_IN_DEFAULT_FORMAT, *frozenset().union(*_IN_DEFAULT_FORMAT.values()))
) - {StoreKind.JOIN_WINDOW}
_OF_DSL_TABLES = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE})


class Evidence(NamedTuple):
    """Kinds that one observation leaves possible.

    Attributes:
        kinds: possible kinds by this alone.
        observation: the observation, as the end of "because of": "its name", "its topic's retention.ms".
        guess: whether a person should check a conclusion that this decided.
    """

    kinds: frozenset[StoreKind]
    observation: str
    guess: bool = False


class Conclusion(NamedTuple):
    """The concluded kind.

    Attributes:
        kind: the kind, or ``?``.
        possible_kinds: the kinds that remain possible.
        remarks: comments for a person; empty if it is certain.
        default_format: whether the default of ``dsl.store.format`` decided it.
    """

    kind: StoreKind
    possible_kinds: frozenset[StoreKind]
    remarks: tuple[str, ...]
    default_format: bool = False


def conclude(evidence: Sequence[Evidence], *, by_dsl: bool = False) -> Conclusion:
    """Conclude the kind from all evidence, applied in order."""
    left, remarks = _combine(evidence)
    default = left
    if by_dsl or left == JOIN_WINDOWS:
        default -= {kind for kind in left if left & _IN_DEFAULT_FORMAT.get(kind, frozenset())}
    defaulted, left = default != left, default
    if left == INDEXED_WINDOWS:
        return Conclusion(StoreKind.HEADERS_EMIT_FINAL_WINDOW, left, tuple(remarks))
    if len(left) == 1:
        return Conclusion(next(iter(left)), left, tuple(remarks), defaulted)
    if len(left) <= 4:
        remarks.append(f"one of {listed(left, 'or')}: nothing here shows which")
    return Conclusion(StoreKind.UNKNOWN, left, tuple(remarks), defaulted)


def possible_kinds(evidence: Sequence[Evidence]) -> frozenset[StoreKind]:
    """The kinds that all evidence leaves, in any format of the DSL."""
    return _combine(evidence)[0]


def _combine(evidence: Sequence[Evidence]) -> tuple[frozenset[StoreKind], list[str]]:
    left = BUILT
    remarks: list[str] = []
    for one in evidence:
        both = left & one.kinds
        if not both:
            remarks.append(f"{one.observation} would make it {listed(one.kinds)}, which contradicts the other evidence")
            continue
        if one.guess and both != left:
            remarks.append(f"{listed(both)} by {one.observation}")
        left = both
    return left, remarks


def openable_kinds(declared: StoreKind) -> frozenset[StoreKind]:
    """The kinds on disk that Kafka Streams opens as a declared kind, and whose rows it then reads rightly.

    These are the kind itself and, since ``dsl.store.format=HEADERS``, those in the default format. A plain row has no
    time, and would be read with the time -1.
    """
    return _IN_DEFAULT_FORMAT.get(declared, frozenset()) - _MISREAD_WITH_HEADERS | {declared}


def is_suppression(store: str) -> bool:
    """Whether only ``suppress`` generates this name; its buffer is in memory."""
    return _SUPPRESSION.match(store) is not None


def is_created_by_dsl(store: str, processors: Collection[str]) -> bool:
    """Whether the DSL chose the class of a store, by its name: the application passed no supplier."""
    return _GENERATED.search(store) is not None or _is_subscription(store, processors)


def _is_subscription(store: str, processors: Collection[str]) -> bool:
    """Whether it is the store of a named foreign-key join (``TableJoined.as``), whose processors are named too."""
    name = store.removesuffix(_SUBSCRIPTION_STORE)
    return name != store and all(name + suffix in processors for suffix in _SUBSCRIBERS)


def listed(kinds: frozenset[StoreKind], word: str = "or") -> str:
    """A list of kinds for messages."""
    names = sorted(str(kind) for kind in kinds)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def evidence_of_name(store: str, processors: Collection[str]) -> list[Evidence]:
    """Evidence of the names that Kafka Streams gives its own stores and processors."""
    lists = _OUTER_JOIN_LIST.search(store) is not None
    found = [Evidence(frozenset({StoreKind.LIST}) if lists else BUILT - {StoreKind.LIST}, "its name")]
    if not store.endswith(GRACE_BUFFER_SUFFIX):
        found.append(Evidence(BUILT - {StoreKind.GRACE_BUFFER}, "its name"))
    if _JOIN_WINDOW.match(store) or any(_WINDOWED.match(processor) for processor in processors):
        found.append(Evidence(JOIN_WINDOWS, "the names in the topology"))
    if any(store == processor + GRACE_BUFFER_SUFFIX for processor in processors):
        guess = not _GENERATED_BUFFER.match(store)
        found.append(Evidence(frozenset({StoreKind.GRACE_BUFFER}), "its name", guess=guess))
    if is_created_by_dsl(store, processors):
        table = _GENERATED_TABLE.match(store) or _is_subscription(store, processors)
        found.append(Evidence(_OF_DSL_TABLES if table else _OF_DSL_SUPPLIERS, "its name"))
    return found


def evidence_of_format(store: str, processors: Collection[str], dsl_store_format: str | None) -> list[Evidence]:
    """Evidence of the application's ``dsl.store.format`` for a store whose class the DSL chose."""
    if dsl_store_format is None or not (is_created_by_dsl(store, processors) or _JOIN_WINDOW.match(store)):
        return []
    headers = frozenset(_IN_DEFAULT_FORMAT)
    kinds = headers if dsl_store_format == "HEADERS" else BUILT - headers
    return [Evidence(kinds, f"dsl.store.format={dsl_store_format}")]


def evidence_of_topic(topic: TopicDescription) -> list[Evidence]:
    """Evidence of a changelog's configuration (``InternalTopicConfig``); none if it is not one of Kafka Streams'.

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
    """The history retention in ms of a versioned store with this changelog; ``None`` for other stores."""
    lag = milliseconds(topic, "min.compaction.lag.ms")
    return lag - DAY_MS if lag is not None and lag >= DAY_MS else None


def window_retention(topic: TopicDescription) -> int | None:
    """The retention in ms of a windowed store with this changelog, or ``None``."""
    retention = milliseconds(topic, "retention.ms")
    known = "delete" in cleanup_policies(topic) and retention is not None and retention >= DAY_MS
    return retention - DAY_MS if known and retention is not None else None


def milliseconds(topic: TopicDescription, name: str) -> int | None:
    """A numeric setting of a topic, or ``None``."""
    text = topic.configs.get(name, "")
    return int(text) if text.isdigit() else None
