"""What a conversion makes of rows that were flushed after ``.checkpoint`` was written.

Under exactly-once they may be of a transaction that was never committed; its input is processed again, and whoever goes
by the file then has its updates twice, as 3.9 and 4.2 themselves and the import of later releases have. So nothing is
taken from the file, and it does not stay: every release wipes a task of exactly-once that has rows and no offset, and
restores it. At-least-once the file is believed: to apply a record again is what that guarantee says, and without the
file rows of a versioned store would be restored upon themselves, which changes them. Where nobody says the guarantee
neither is right, and the task is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statecore.conversion.inspection import StoreInspection, TaskInspection
from statecore.conversion.offset_entries import OffsetEntries
from statecore.errors import Reason
from statecore.formats.releases import CHECKPOINT_FILE, Release
from statecore.statedir.flush_times import in_words

_NAMED = 3


@dataclass(frozen=True)
class FlushOrder:
    """What is to be thought of ``.checkpoint``.

    Attributes:
        refused: why nobody knows whether to believe it; ``None`` where that is known.
        distrusted: why nothing is taken from it; empty where it is believed.
        remarks: what a person should know of it.
    """

    refused: Reason | None = None
    distrusted: str = ""
    remarks: tuple[str, ...] = ()


def lateness(seen: TaskInspection, claimed: OffsetEntries, exactly_once: bool | None, to: Release) -> FlushOrder:
    """Decide whether the ``.checkpoint`` of a task is believed.

    Args:
        seen: the task.
        claimed: whose the entries of the file are.
        exactly_once: the guarantee; ``None`` where it is not known.
        to: the release that is to open it.
    """
    stores = [store for store in seen.stores if _goes_by_it(store, claimed)]
    late = {name: at for store in stores for name, at in store.flushes.late.items()}
    if not late:
        lost = exactly_once is not False and _times_lost(stores)
        return FlushOrder(remarks=(_TIMES_LOST,) if lost else ())
    said = f"rows were flushed after {CHECKPOINT_FILE} was written ({_files(late)})"
    if exactly_once is False:
        return FlushOrder(
            remarks=(
                f"{said}: the application was not closed. What came since is restored again, and input that was not "
                "committed is processed again, as at-least-once has it",
            )
        )
    may_be = "they may be of a transaction that was never committed, of which the input is processed again"
    if exactly_once is None:
        return FlushOrder(
            refused=Reason(
                f"{said}: the application was not closed. Under exactly-once {may_be}, so that no offset may be "
                f"taken over from {CHECKPOINT_FILE}; at-least-once the file is right. Say which it is "
                "(--processing-guarantee, or a spec)",
                "processing-guarantee-unknown",
                stores=sorted(store.store for store in stores if store.flushes.late),
            )
        )
    return FlushOrder(
        distrusted=f"{said}: the application was not closed, and under exactly-once {may_be}. So no offset is taken "
        f"over and {CHECKPOINT_FILE} is moved aside: Kafka Streams {to.name} finds none, and restores the task from "
        f"the start after it has wiped it.{_lost_with_it(seen, claimed)}"
    )


_TIMES_LOST = (
    f"its files are copies that have not kept their times: whether rows were flushed after {CHECKPOINT_FILE} was "
    "written is not to be seen. Where the application was killed under exactly-once, copy them again with their times "
    "(cp -a, rsync -a), or have the task restored"
)


def _goes_by_it(store: StoreInspection, claimed: OffsetEntries) -> bool:
    """Whether the offset of a store's rows is what the file says; of an undeclared one it may be any entry."""
    if store.logged is not None:
        return store.logged
    return bool(claimed.of(store) or claimed.unclaimed)


def _lost_with_it(seen: TaskInspection, claimed: OffsetEntries) -> str:
    """The stores that are wiped with the task and restored from nowhere."""
    names = [store.store for store in seen.stores if store.has_rows and not _goes_by_it(store, claimed)]
    return f" {', '.join(names)} has no changelog that is known, and goes with it: copy it first." if names else ""


def _times_lost(stores: Iterable[StoreInspection]) -> bool:
    every = [store.flushes for store in stores]
    return any(one.flushed for one in every) and not any(one.kept for one in every)


def _files(late: dict[str, int]) -> str:
    named = [f"{name} at {in_words(at)}" for name, at in sorted(late.items())]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} more files" if more > 0 else "")
