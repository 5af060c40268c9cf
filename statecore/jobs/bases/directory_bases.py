"""Stores of a state directory as bases: closed databases, each at the offset it contains.

A state directory records neither the topic ids of its offsets nor when they were the end of the log. So the tail above
such a store has to be complete (:mod:`statecore.changelog.soundness`), and a recreated topic is noticed only if it is
shorter now, as in Kafka Streams itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from statecore.changelog.soundness import BaseEnd
from statecore.errors import Capacity, Corrupted, Invalid, Reason, Retryable, StatecoreError
from statecore.formats.offsets import next_offset
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.topic_partition import TopicPartition, offsets_in_words
from statecore.images.linked_bases import ImageBase, ImageBases, checked_bases
from statecore.jobs.bases.base import DIRECTORY, Base, Key, Refused
from statecore.spec.model import ApplicationSpec, StoreSpec, segment_interval_of, segmentation_of
from statecore.spec.units import format_duration
from statecore.statedir.checkpoint_overlay import overriding
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.task_layout import StoreDirectory, rows_without_current, why_partially_deleted
from statecore.stores.legacy_offsets import read_offsets


class DirectoryBases:
    """The stores of an application's directory; see :class:`statecore.jobs.bases.base.BaseCandidates`."""

    def __init__(
        self, directory: StateDirectory, spec: ApplicationSpec, refused: Mapping[tuple[Key, str], Reason]
    ) -> None:
        self._directory, self._spec, self._refused = directory, spec, refused

    def has(self, key: Key) -> bool:
        """Whether the directory has files of a store, also of one that was deleted in part."""
        return self._found(key) is not None

    def why_incomplete(self, key: Key) -> Refused | None:
        """The refusal of a store of which files of rows belong to no database; ``None`` of any other."""
        found, store = self._found(key), self._spec.store(key[1])
        return None if found is None or store is None else _why_incomplete(key, store, found)

    def of(self, key: Key) -> Iterator[Base | Refused]:
        found, store = self._found(key), self._spec.store(key[1])
        if found is None or store is None:
            return
        why = self._refused.get((key, DIRECTORY))
        if why is not None:
            yield Refused(*key, DIRECTORY, why)
            return
        incomplete = _why_incomplete(key, store, found)
        if incomplete is not None:
            yield incomplete
            return
        try:
            yield self._base(key[0], store, found)
        except (Retryable, Capacity):
            raise
        except StatecoreError as error:
            yield Refused(*key, DIRECTORY, Reason(error.what.rstrip("."), error.code, **error.context))

    def _found(self, key: Key) -> StoreDirectory | None:
        store = self._spec.store(key[1])
        name = "" if store is None else store_directory(store.name, store.kind)
        found = next((one for one in self._directory.stores(key[0]) if one.name == name), None)
        return found if found is not None and (found.databases or rows_without_current(found)) else None

    def _base(self, task: str, store: StoreSpec, found: StoreDirectory) -> Base:
        databases = _databases(store, found)
        segment_offsets = {
            segment: dict(read_database(path, manifests=True).checked().state.offsets)
            for segment, path in databases.items()
        }
        if not store.kind.manages_offsets:
            segment_offsets = dict.fromkeys(segment_offsets, read_offsets(found.checkpoint_file))
        offsets = next(iter(segment_offsets.values()))
        if any(other != offsets for other in segment_offsets.values()):
            raise Corrupted(
                "its segments have different offsets "
                f"({', '.join(sorted(offsets_in_words(one) or 'none' for one in segment_offsets.values()))})",
                code="segment-offsets-differ",
                action="",
            )
        self._refuse_overruled(task, store, offsets)
        if not offsets:
            raise Corrupted("it has no offset", code="store-offset-missing", action="")
        if min(offsets.values()) < 0:
            # -4: its changelog was empty when it was closed; it has no rows, so no delete can be missing. Of another
            # negative offset, which Kafka Streams does not write, the rows are not used either.
            return Base(DIRECTORY, {part: BaseEnd(part, "", 0, -1, None) for part in offsets}, frozenset())
        is_global = task == GLOBAL
        starts = {part: next_offset(offset, is_global=is_global) for part, offset in offsets.items()}
        # Checks kind, status and files, and changes nothing.
        bases = ImageBases(
            {segment: ImageBase(path) for segment, path in databases.items()}, starts, global_store=is_global
        )
        checked_bases(bases, store.kind, list(starts))
        interval = segment_interval_of(store) if store.kind.is_segmented else None
        newest = max((segment for segment in databases if segment is not None), default=-1)
        return Base(
            DIRECTORY,
            {part: BaseEnd(part, "", end, -1, None) for part, end in starts.items()},
            frozenset(databases),
            -1 if interval is None else newest * interval,
            databases={segment: str(path) for segment, path in databases.items()},
        )

    def _refuse_overruled(self, task: str, store: StoreSpec, own: Mapping[TopicPartition, int]) -> None:
        """Refuse a store if ``.checkpoint`` would change its offsets at the next start."""
        entries = overriding(self._directory.task_path(task), own, {store.changelog})
        if not entries:
            return
        if not own:
            raise Corrupted(
                f"its offset is in {CHECKPOINT_FILE} of an older Kafka Streams: migrate the directory "
                "first (statecore migrate)",
                code="offset-in-checkpoint-file",
                action="",
            )
        raise Invalid(
            f"{CHECKPOINT_FILE} has {offsets_in_words(entries)}, and the store {offsets_in_words(own)}: the file "
            "overrides the store at the next start; start the application once, or delete the file if it is a leftover",
            code="checkpoint-file-mismatch",
            action="",
        )


def _why_incomplete(key: Key, store: StoreSpec, found: StoreDirectory) -> Refused | None:
    why = why_partially_deleted(found, segmentation_of(store))
    return Refused(*key, DIRECTORY, Reason(why.rstrip("."), "store-incomplete")) if why else None


def _databases(store: StoreSpec, found: StoreDirectory) -> dict[int | None, Path]:
    if not store.kind.is_segmented:
        return {None: found.path}
    interval = segment_interval_of(store)
    assert interval is not None  # every segmented kind has one
    databases: dict[int | None, Path] = {}
    for segment in found.segments:
        if segment.start is None or segment.start % interval:
            raise Corrupted(
                f"{segment.path.name} is not a segment of {format_duration(interval)}, the interval of the "
                "declared retention",
                code="segment-start-misaligned",
                action="",
                segment=segment.path.name,
                expected=interval,
            )
        databases[segment.start // interval] = segment.path
    return databases
