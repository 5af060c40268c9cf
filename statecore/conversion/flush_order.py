"""Decides how a conversion treats rows that were flushed after ``.checkpoint`` was written.

Under exactly-once they may belong to a transaction that was never committed. Its input is processed again, so an
application that trusts the file applies its updates twice, as 3.9 and 4.2 themselves and the import of later releases
do. So the file is ignored and removed: every release wipes an exactly-once task that has rows and no offset, and
restores it. At-least-once the file is trusted: applying a record again is within that guarantee, and without the file
rows of a versioned store would be restored over themselves, which changes them. If the guarantee is unknown neither is
right, and the task is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statecore.conversion.inspection import StoreInspection, TaskInspection
from statecore.conversion.offset_entries import OffsetEntries
from statecore.errors import Reason
from statecore.formats.releases import CHECKPOINT_FILE, Release
from statecore.statedir.flush_times import format_time

_NAMED = 3


@dataclass(frozen=True)
class FlushOrder:
    """How ``.checkpoint`` is treated.

    Attributes:
        refused: why it is undecidable whether to trust it; ``None`` if it is decided.
        distrusted: why it is ignored; empty if it is trusted.
        remarks: comments for a person.
    """

    refused: Reason | None = None
    distrusted: str = ""
    remarks: tuple[str, ...] = ()


def check_flush_order(
    seen: TaskInspection, entries: OffsetEntries, exactly_once: bool | None, to: Release
) -> FlushOrder:
    """Decide whether the ``.checkpoint`` of a task is trusted."""
    stores = [store for store in seen.stores if _relies_on_file(store, entries)]
    late = {name: at for store in stores for name, at in store.flushes.late.items()}
    if not late:
        lost = exactly_once is not False and _times_lost(stores)
        return FlushOrder(remarks=(_TIMES_LOST,) if lost else ())
    text = f"rows were flushed after {CHECKPOINT_FILE} was written ({_files(late)})"
    if exactly_once is False:
        return FlushOrder(
            remarks=(
                f"{text}: the application was not closed. Later records are restored again, and input that was not "
                "committed is processed again, as at-least-once allows",
            )
        )
    may_be = "they may be of a transaction that was never committed, whose input is processed again"
    if exactly_once is None:
        return FlushOrder(
            refused=Reason(
                f"{text}: the application was not closed. Under exactly-once {may_be}, so that no offset may be "
                f"read from {CHECKPOINT_FILE}; at-least-once the file is right. Give the guarantee "
                "(--processing-guarantee, or a spec)",
                "processing-guarantee-unknown",
                stores=sorted(store.store for store in stores if store.flushes.late),
            )
        )
    return FlushOrder(
        distrusted=f"{text}: the application was not closed, and under exactly-once {may_be}. So no offset is read "
        f"and {CHECKPOINT_FILE} is moved aside: Kafka Streams {to.name} finds none, and restores the task from "
        f"the start after it has wiped it.{_lost_with_it(seen, entries)}"
    )


_TIMES_LOST = (
    f"its files are copies that have not kept their times: whether rows were flushed after {CHECKPOINT_FILE} was "
    "written is unknown. If the application was killed under exactly-once, copy them again with their times "
    "(cp -a, rsync -a), or have the task restored"
)


def _relies_on_file(store: StoreInspection, claimed: OffsetEntries) -> bool:
    """Whether a store relies on the file for its offset; an undeclared one may use any entry."""
    if store.logged is not None:
        return store.logged
    return bool(claimed.of(store) or claimed.unclaimed)


def _lost_with_it(seen: TaskInspection, claimed: OffsetEntries) -> str:
    """The stores that are wiped with the task and cannot be restored."""
    names = [store.store for store in seen.stores if store.has_rows and not _relies_on_file(store, claimed)]
    return f" {', '.join(names)} has no known changelog, and is lost with it: copy it first." if names else ""


def _times_lost(stores: Iterable[StoreInspection]) -> bool:
    every = [store.flushes for store in stores]
    return any(one.flushed for one in every) and not any(one.kept for one in every)


def _files(late: dict[str, int]) -> str:
    named = [f"{name} at {format_time(at)}" for name, at in sorted(late.items())]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} more files" if more > 0 else "")
