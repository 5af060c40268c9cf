"""Whether a head is an older version of itself: a bucket that was restored, an older file that was copied over it.

Such a head is whole, so no reader can tell by it alone. But what was written for later heads gives it away: a job makes
the manifest of the next generation, so one of a later generation, or epoch, was made for a head that is gone. A list of
garbage says which head it was made for. Where as many jobs have published since as the head has lost, only a pin shows
it that the retention record has and the head has not. A pin or unpin that was killed leaves the same, so that proves
nothing: what such a snapshot needs is kept, a verification names it, and a person decides.

The head counts all the same, until it is rebuilt (:mod:`statecore.repository.maintenance.head_repair`). Until then no
garbage is deleted: names that a later head did not reach, so that they were taken for garbage for ever, are reached
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from statecore.errors import Corrupted
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head
from statecore.repository.maintenance.garbage import list_orders, unnamed_manifests
from statecore.repository.maintenance.retention_record import read_retention

Order = tuple[int, int]
"""Epoch and generation of a head."""


def why_reverted(
    head: Head, manifests: Mapping[str, Order], lists: Iterable[Order], pins: Collection[str] = ()
) -> str | None:
    """What shows that a head has gone back; ``None`` where nothing does.

    Args:
        head: as it was read after the others, because jobs publish meanwhile.
        manifests: for which head each was made, by snapshot.
        lists: for which head each list of garbage was made.
        pins: the snapshots that the retention record pins, as it was read after the head: a pin is recorded first.
    """
    here = f"it is of generation {head.generation} in epoch {head.epoch}, and there is a"
    snapshot, (epoch, generation) = max(manifests.items(), key=lambda one: one[1], default=("", (0, 0)))
    if epoch > head.epoch or (epoch == head.epoch and generation > head.generation + 1):
        return f"{here} snapshot of a later one, {snapshot} (generation {generation}, epoch {epoch})"
    later = max(lists, default=(0, 0))
    if later > head.order:
        return f"{here} list of garbage of a later one (generation {later[1]}, epoch {later[0]})"
    lost = sorted(one for one in pins if one in manifests and head.entry(one) is None)
    return f"it does not name {lost[0]}, which is pinned" if lost else None


def check_not_reverted(app_repository: ApplicationRepository, head: Head) -> Mapping[str, Order]:
    """For which head each manifest was made that a head does not name, by blob; nothing of a replica.

    Raises ``Corrupted`` for a head that is older than what was made for it, as that of a replica is during a copy.
    """
    if app_repository.repository.is_replica:
        return {}
    found, lists = unnamed_manifests(app_repository, head), list_orders(app_repository)
    prefix = app_repository.names.manifests
    orders = {name.removeprefix(prefix).removesuffix(".json"): order for name, order in found.items()}
    if why_reverted(head, orders, lists) is not None:
        why = why_reverted(app_repository.reread_head().head, orders, lists)  # jobs publish meanwhile
        if why is not None:
            raise _reverted_error(app_repository, why)
    return found


def lost_pins(app_repository: ApplicationRepository, head: Head, manifests: Collection[str]) -> list[str]:
    """The snapshots that the retention record pins and a head does not name, and that have one of these manifests.

    A pin or unpin was killed, or the head has gone back, and has gone as far again since.
    """
    pins = read_retention(app_repository).notes
    return [one for one in pins if head.entry(one) is None and app_repository.names.manifest(one) in manifests]


def check_pins(app_repository: ApplicationRepository, head: Head, manifests: Collection[str]) -> None:
    """Raise ``Corrupted`` if there are lost pins (:func:`lost_pins`)."""
    lost = lost_pins(app_repository, head, manifests) and lost_pins(
        app_repository, app_repository.reread_head().head, manifests
    )
    if lost:
        raise Corrupted(
            f"The snapshot {lost[0]} of {app_repository.application_id} in {app_repository.url} is pinned, and the "
            "head does not name it. Its files are kept.",
            code="pin-lost",
            action="If a pin or unpin was killed, remove the pin: "
            f"{app_repository.unpin_command(lost[0])}. If the head was put back to an older version, "
            f"rebuild it: {app_repository.repair_command} --apply",
            application_id=app_repository.application_id,
            repository=app_repository.url,
            snapshots=lost,
        )


def _reverted_error(app_repository: ApplicationRepository, why: str) -> Corrupted:
    return Corrupted(
        f"The head of {app_repository.application_id} in {app_repository.url} has gone back to an older version: "
        f"{why}.",
        code="head-reverted",
        action="Find out what has put it there (a restored bucket, an older copy), and rebuild it; without --apply the "
        f"command only shows the plan: {app_repository.repair_command} --apply",
        application_id=app_repository.application_id,
        repository=app_repository.url,
    )
