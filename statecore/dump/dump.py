"""Streams the rows of a store of any kind as decoded Arrow batches, by task and by segment in order of time.

Memory holds a few megabytes of rows at a time, whatever the size of the store. A store that was upgraded in place still
has rows of older formats in other column families; they come after the newer ones, with nulls for missing columns.
"""

from __future__ import annotations

import statecore.extras.pipeline

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statecore.discover.kind_detection import detect_kind, kinds_opening_families
from statecore.discover.kind_evidence import conclude, evidence_of_name, listed, openable_kinds
from statecore.dump.deserializers import Deserializer
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY
from statecore.formats.segments import Segmentation
from statecore.spec.model import ApplicationSpec
from statecore.statedir.readonly_database import Database, opened_database
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import DatabaseOnDisk
from statecore.statedir.store_places import StorePlace, split_ignored, store_places, suggest_names
from statecore.statedir.task_layout import why_partially_deleted
from statecore.stores.rocksdb.directory_lock import writer_of

MILLISECONDS = pa.timestamp("ms", tz="UTC")
"""Type of times in Parquet and tables."""

TIMES = frozenset({"window_start", "session_start", "session_end", "timestamp", "valid_from", "valid_to"})
"""Columns of int64 ms."""

_KEY_FIRST_KINDS = frozenset(StoreKind) - {
    StoreKind.VERSIONED_KEY_VALUE,
    StoreKind.LIST,
    StoreKind.GRACE_BUFFER,
    StoreKind.EMIT_FINAL_WINDOW,
    StoreKind.EMIT_FINAL_SLIDING_WINDOW,
    StoreKind.EMIT_FINAL_SESSION,
    StoreKind.HEADERS_EMIT_FINAL_WINDOW,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW,
    StoreKind.HEADERS_EMIT_FINAL_SESSION,
}
"""Kinds whose rows begin with the key, so that rows of a key prefix are adjacent."""

_OLDER: dict[StoreKind, tuple[StoreKind, ...]] = {
    StoreKind.TIMESTAMPED_KEY_VALUE: (StoreKind.KEY_VALUE,),
    StoreKind.HEADERS_KEY_VALUE: (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.KEY_VALUE),
    StoreKind.TIMESTAMPED_WINDOW: (StoreKind.WINDOW,),
    StoreKind.HEADERS_WINDOW: (StoreKind.TIMESTAMPED_WINDOW, StoreKind.WINDOW),
    StoreKind.HEADERS_SESSION: (StoreKind.SESSION,),
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: (StoreKind.EMIT_FINAL_SLIDING_WINDOW,),
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: (StoreKind.EMIT_FINAL_SLIDING_WINDOW,),
    StoreKind.HEADERS_EMIT_FINAL_SESSION: (StoreKind.EMIT_FINAL_SESSION,),
}
"""Older formats whose rows Kafka Streams still reads below those of a kind (``DualColumnFamilyAccessor``)."""


@dataclass(frozen=True)
class Dump:
    """A request to dump a store.

    Attributes:
        prefix: only keys that begin with these bytes.
        segmentation: segment interval and retention of its rows, if known.
    """

    store: str
    kind: StoreKind
    places: tuple[StorePlace, ...]
    key: Deserializer
    value: Deserializer
    prefix: bytes = b""
    segmentation: Segmentation | None = None

    @property
    def schema(self) -> pa.Schema:
        nothing = pa.array([], pa.large_binary())
        return self._with_task_columns(row_format(self.kind).decode(nothing, nothing), self.places[0]).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decoded rows in non-empty batches; segments that expire meanwhile are skipped."""
        schema = self.schema
        for place in self.places:
            self._refuse_half_deleted(place)
        for place in self.places:
            for path in place.databases:
                with contextlib.suppress(NotFound), opened_database(path) as (on_disk, database):
                    _refuse_damaged(place, on_disk)
                    self._check_families(place, path, database.families)
                    for batch in self._decode(database, place):
                        if len(batch):
                            yield _aligned(batch, schema)

    def estimate(self) -> int:
        """RocksDB's estimate of the rows of all its databases."""
        total = 0
        for place in self.places:
            for path in place.databases:
                with contextlib.suppress(NotFound), Database(path) as database:
                    total += database.estimate(self.kind.data_column_family)
        return total

    def _refuse_half_deleted(self, place: StorePlace) -> None:
        # A process that has the store open may just be deleting an expired segment.
        if (lost := why_partially_deleted(place, self.segmentation)) and not any(map(writer_of, place.databases)):
            raise Corrupted(
                f"Store {place.store} of task {place.task}: {lost}",
                code="store-incomplete",
                action="Restore it (statecore restore --replace), or name other tasks (--task).",
                store=place.store,
                task=place.task,
            )

    def _decode(self, database: Database, place: StorePlace) -> Iterator[pa.RecordBatch]:
        for kind in (self.kind, *_OLDER.get(self.kind, ())):
            first = self.prefix if self.prefix and kind in _KEY_FIRST_KINDS else None
            for keys, values in database.chunks(kind.data_column_family, first):
                if first is not None and not keys[0].startswith(self.prefix):
                    break
                yield self._with_task_columns(self._rows(kind, keys, values, database.path, place), place)

    def _rows(
        self, kind: StoreKind, keys: list[bytes], values: list[bytes], path: Path, place: StorePlace
    ) -> pa.RecordBatch:
        try:
            batch = row_format(kind).decode(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
        except Corrupted as error:
            raise error.restated(
                f"{error.what.rstrip('.')}, in store {place.store} of task {place.task} ({path}).",
                store=place.store,
                task=place.task,
                kind=str(kind),
            ) from error
        if self.prefix:
            named = batch.column("key").cast(pa.large_binary())
            # Arrow's starts_with knows strings only; the first bytes are compared instead.
            batch = batch.filter(pc.equal(pc.binary_slice(named.cast(pa.binary()), 0, len(self.prefix)), self.prefix))
        return batch

    def _with_task_columns(self, batch: pa.RecordBatch, place: StorePlace) -> pa.RecordBatch:
        count = len(batch)
        columns: dict[str, pa.Array] = {
            "task": pa.array([place.task] * count, pa.string()),
            "partition": pa.array([place.partition] * count, pa.int32()),
        }
        for name in batch.schema.names:
            column = batch.column(name)
            if name == "key":
                column = _converted(self.key, column, place)
            elif name == "value":
                column = _converted(self.value, column, place)
            elif name in TIMES:
                column = column.cast(MILLISECONDS)
            columns[name] = column
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _check_families(self, place: StorePlace, path: Path, families: frozenset[str]) -> None:
        if not openable_kinds(self.kind) & kinds_opening_families(families, segmented=place.segmented):
            others = ", ".join(sorted(families - {DEFAULT_COLUMN_FAMILY})) or "only default"
            raise Invalid(
                f"{path} is no {self.kind} store: it has the column families {others}"
                f"{' in segments' if place.segmented else ''}.",
                code="kind-mismatch",
                action="Leave --kind out, or correct it (or the kind in the spec).",
                kind=str(self.kind),
                families=sorted(families),
                store=place.store,
                task=place.task,
            )


def _refuse_damaged(place: StorePlace, database: DatabaseOnDisk) -> None:
    try:
        database.checked()
    except Corrupted as error:
        raise error.restated(
            f"Store {place.store} of task {place.task}: {error.what}", store=place.store, task=place.task
        ) from error


def _converted(by: Deserializer, column: pa.Array, place: StorePlace) -> pa.Array:
    try:
        return by.convert(column)
    except Invalid as error:
        raise error.restated(
            f"{error.what.rstrip('.')}, in store {place.store} of task {place.task}.",
            store=place.store,
            task=place.task,
        ) from error


def _aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def find_store(
    directory: StateDirectory, store: str, tasks: Sequence[str], spec: ApplicationSpec | None = None
) -> tuple[StorePlace, ...]:
    """The directories of a store. Raises ``NotFound``, with existing names, if it has none, or none in these tasks."""
    every, _ = split_ignored(store_places(directory), spec)
    places = [place for place in every if place.store == store]
    if not places:
        raise NotFound(
            f"{directory.path} has no store {store}{suggest_names(store, {place.store for place in every})}",
            code="store-not-found",
            action="Name a store that exists; `statecore inspect` shows them. Stores in memory have no directory.",
            store=store,
        )
    known = {place.task for place in places}
    for task in tasks:
        if task not in known:
            raise NotFound(
                f"Store {store} is not in task {task}{suggest_names(task, known)}",
                code="task-not-found",
                action="Name a task that has it, or leave --task out.",
                store=store,
                task=task,
            )
    return tuple(place for place in places if not tasks or place.task in tasks)


def kind_of(places: Sequence[StorePlace], given: StoreKind | None, spec: ApplicationSpec | None) -> StoreKind:
    """The kind to read a store as: the given one, else the spec's, else the detected one."""
    first = places[0]
    kind, source = given, "--kind"
    if kind is None and spec is not None:
        every = (*spec.stores, *spec.global_stores)
        kind = next((one.kind for one in every if one.name == first.store), None)
        source = spec.source
    if kind is not None and kind is not StoreKind.UNKNOWN:
        if not kind.can_be_built:
            custom = kind is StoreKind.CUSTOM
            why = "the format of such a store is not known" if custom else "such a store has no rows on disk"
            raise Invalid(
                f"{source} says {kind} of {first.store}, and {why}.",
                code="kind-without-rows",
                action="Give --kind, or correct the spec.",
                store=first.store,
                kind=str(kind),
            )
        return kind
    seen = detect_kind([place for place in places if place.segmented == first.segmented])
    kind, left, *_ = conclude([*seen.evidence, *evidence_of_name(first.store, ())])
    if seen.unopenable or kind is StoreKind.UNKNOWN:
        why = seen.unopenable or f"it may be {listed(left)}"
        raise Invalid(
            f"The kind of {first.store} cannot be detected from its directory: {why}.",
            code="kind-undecided",
            action="Give --kind, or --spec with the kind decided.",
            store=first.store,
        )
    return kind
