"""Rebuilds a lost or damaged head from the manifests, which are never changed (``docs/repository-format.md``).

Each manifest records epoch and generation of the head it was made for, and the snapshot that was newest before it::

    generation 7, previous 6 ──▶ generation 6, previous 5 ──▶ generation 5, previous 4 ──▶ ...
    generation 6, previous 5     lost its race for the head, and no manifest refers to it: left out

**Without a head** a manifest is usable if its seal holds, its task manifests can be read and their files exist. Where
one cannot be used, its own previous one is next; where it cannot be read, the newest of those before it. One that was
put just before its writer died cannot be told from a published one: what it names is complete all the same. Pins and
retention are those of the retention record (:mod:`statecore.repository.maintenance.retention_record`), and whatever can
be read of a damaged head; so are the features that one has to know to write it.

**With a head** that can be read, it alone decides which snapshots are published. It is rebuilt without those whose
manifest or task manifests are damaged, because publications have to read these.

**With a head that has gone back** (:mod:`statecore.repository.maintenance.reverted_head`) the manifests decide, as
without one. Pins and retention stay: those of the head, and those of the record, which may be later. Where jobs have
published since, for that head, there are two branches with the same generations, and the one that goes on counts::

    generation 9, previous 8 ──▶ generation 8 ──▶ generation 7 ──▶ generation 6, which the head names
                                 made after that: generation 7 ──▶ generation 6

So it does that was made last: its stores are further, and instances may have started from them.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.repository.application_repository import FOREIGN_MANIFEST, ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR_NAME
from statecore.repository.head import SAME_BUT_FOR_CASE, Head, ReadHead, Retention, decoded_head, encoded_head
from statecore.repository.incoming_file import scratch_directory
from statecore.repository.layout import collection_of
from statecore.repository.maintenance.damaged_head import (
    salvaged_needs,
    salvaged_numbers,
    salvaged_pins,
    salvaged_retention,
)
from statecore.repository.maintenance.found_manifests import ExcludedSnapshot, FoundManifest, find_manifests
from statecore.repository.maintenance.garbage import (
    GarbageList,
    ListedGarbage,
    NameSet,
    list_orders,
    names_of_snapshot,
    read_lists,
)
from statecore.repository.maintenance.rebuilt_head import (
    chain_of,
    head_entries,
    newest_of,
    next_head,
    with_pinned,
    with_pins_of_branches,
)
from statecore.repository.maintenance.retention_record import (
    RetentionRecord,
    head_change_in_errors,
    read_retention,
    record_named_pins,
)
from statecore.repository.maintenance.reverted_head import why_reverted
from statecore.repository.manifest import Manifest
from statecore.repository.needs import NO_NEEDS, Needs
from statecore.repository.repository import check_descriptor_unchanged
from statecore.repository.snapshot_verification import Damage, SnapshotVerification
from statecore.words import shortened_list

_JUMP = 1 << 40  # Collections that leave no trace are fewer by far
_UNNAMED = "the head that is there does not name it"
_COLLECTED = "the head did not name it any more, and its blobs are being deleted"
_OLDER = "it is older than the checkpoints and compactions that a head names"
_GONE = "the head names it, and its manifest is missing"
_OTHER_BRANCH = "the head had gone back, and what was published since counts instead"


@dataclass(frozen=True)
class HeadRepairPlan:
    """What a repair would do."""

    problem: str | None  # what is wrong with the head; None where no repair is needed
    head: Head  # the new head; the present one where no repair is needed
    excluded: tuple[ExcludedSnapshot, ...]  # what that head does not name
    document: bytes  # the bytes of the new head; empty where no repair is needed
    expected: str | None  # the version of the head that was read; None where there was none
    code: str = ""  # the code of what is wrong; empty where no repair is needed


def random_jump() -> int:
    """By how much the collection number of a head that is recreated exceeds all known ones.

    The old head may have had a greater number than anything that is left, and a collector that was stopped may still
    delete names of it: none of them is to be made again.
    """
    return 1 + secrets.randbelow(_JUMP)


def plan_repair(
    app_repository: ApplicationRepository,
    advance: Callable[[], None] = lambda: None,
    jump: Callable[[], int] = random_jump,
) -> HeadRepairPlan:
    """Inspect a head and plan its repair. Nothing is changed.

    Args:
        advance: called for each snapshot.
        jump: see :func:`random_jump`.
    """
    app_repository.repository.check_primary()
    pointed = app_repository.pointers.read(app_repository.names.head)
    if pointed is None:
        kept = _kept(read_retention(app_repository))
        return _plan_of_manifests(app_repository, ("it is missing", "head-missing"), None, {}, advance, jump, kept)
    own_id = app_repository.repository.descriptor.id
    try:
        found = decoded_head(pointed.content, own_id, app_repository.application_id, app_repository.rebuild_advice)
    except (Corrupted, Invalid) as error:
        if isinstance(error, Invalid) and error.context.get("found_repository_id", own_id) == own_id:
            raise  # of another release or application: it is no head of this one that was damaged or copied
        content = pointed.content
        salvaged = salvaged_pins(content), salvaged_retention(content), salvaged_needs(content)
        kept = _kept(read_retention(app_repository), *salvaged)
        numbers = salvaged_numbers(content)
        problem = (error.what, error.code)
        return _plan_of_manifests(app_repository, problem, pointed.version, numbers, advance, jump, kept)
    read = ReadHead(found.value, found.raw, pointed.version)
    return _plan_of_readable_head(app_repository, read, advance, jump)


class _Kept(NamedTuple):
    """What a head that is rebuilt from manifests has of the one before."""

    pins: Mapping[str, str]  # the snapshots that it pins, and why
    keep: Retention
    needs: Needs


def _kept(
    recorded: RetentionRecord,
    pins: Mapping[str, str] = MappingProxyType({}),
    keep: Retention | None = None,
    needs: Needs = NO_NEEDS,
) -> _Kept:
    """What the retention record has, and what can be read of the head."""
    return _Kept({**recorded.notes, **pins}, recorded.keep_with(keep), recorded.needs.and_also(needs))


def apply_repair(app_repository: ApplicationRepository, plan: HeadRepairPlan) -> None:
    """Swap the head as planned."""
    if plan.problem is None:
        return
    check_descriptor_unchanged(app_repository.repository)
    if app_repository.pointers.swap(app_repository.names.head, plan.document, plan.expected) is None:
        found = app_repository.pointers.read(app_repository.names.head)
        if found is None or found.content != plan.document:
            raise _changed(app_repository)
    with head_change_in_errors(
        app_repository, "remove the pins that repo verify reports as lost (statecore repo unpin ID)"
    ):
        record_named_pins(app_repository, plan.head)


def _changed(app_repository: ApplicationRepository) -> Fenced:
    return Fenced(
        f"The head of {app_repository.application_id} was swapped by another process during the inspection; "
        "nothing was changed.",
        code="head-changed",
        action=f"List the snapshots: {app_repository.list_command}; then, where that is still needed: "
        f"{app_repository.repair_command}",
        application_id=app_repository.application_id,
        repository=app_repository.url,
    )


def _plan_of_readable_head(
    app_repository: ApplicationRepository,
    read: ReadHead,
    advance: Callable[[], None],
    jump: Callable[[], int],
) -> HeadRepairPlan:
    """Plan for a readable head: without the snapshots that cannot be read."""
    lists = list_orders(app_repository)
    manifests, unread, _ = find_manifests(app_repository)
    orders = {name: found.order[:2] for name, found in manifests.items()}
    now = app_repository.read_head() or read  # jobs publish meanwhile
    recorded = read_retention(app_repository)
    why = why_reverted(now.head, orders, lists, recorded.notes)
    if why is not None:
        known = {"epoch": now.head.epoch, "generation": now.head.generation, "collection": now.head.collection}
        kept = _kept(recorded, now.head.pins, now.head.keep, now.head.needs)
        problem = (why, "head-reverted")
        return _plan_of_manifests(app_repository, problem, now.version, known, advance, jump, kept, before=now)
    with SnapshotVerification(app_repository, tolerated=(Corrupted,)) as verification:
        verified = verification.snapshots(read.head.snapshots, advance)
    damaged = [
        ExcludedSnapshot(one.entry.snapshot, _describe(one.damage), _code(one.damage)) for one in verified if one.damage
    ]
    named = {entry.snapshot for entry in read.head.snapshots}
    if not damaged:
        there = [*manifests, *(one.snapshot for one in unread)]
        unnamed = tuple(ExcludedSnapshot(one, _UNNAMED, "not-named") for one in sorted(there) if one not in named)
        return HeadRepairPlan(None, read.head, unnamed, b"", read.version)
    others = [ExcludedSnapshot(one, _UNNAMED, "not-named") for one in sorted(manifests) if one not in named]
    whole = tuple(one.entry for one in verified if not one.damage)
    head = next_head(
        app_repository,
        whole,
        manifests.values(),
        {"epoch": read.head.epoch, "generation": read.head.generation},
        read.head.collection,
        read.head,
    )
    wrong = f"of {len(named)} snapshots that it names {len(damaged)} cannot be read"
    left_out = (*damaged, *others, *(one for one in unread if one.snapshot not in named))
    return HeadRepairPlan(wrong, head, left_out, encoded_head(head, read.raw), read.version, "snapshots-damaged")


def _plan_of_manifests(
    app_repository: ApplicationRepository,
    problem: tuple[str, str],
    expected: str | None,
    known: Mapping[str, int],
    advance: Callable[[], None],
    jump: Callable[[], int],
    kept: _Kept,
    *,
    before: ReadHead | None = None,
) -> HeadRepairPlan:
    """Plan a head from the manifests.

    Args:
        problem: what is wrong with the old one, and its code.
        expected: its version; ``None`` where there is none.
        known: its epoch, generation and collection number, where known.
        jump: see :func:`random_jump`.
        kept: what the new head has of the old one.
        before: the old one where it can be read.

    Raises:
        Invalid: only a newer release may write that head.
    """
    wrong, code = problem
    pins = kept.pins
    kept.needs.check_writable(f"The head of {app_repository.application_id}")
    named = set(pins) | ({entry.snapshot for entry in before.head.snapshots} if before else set())
    with scratch_directory("statecore-garbage-") as directory:
        listed = read_lists(app_repository, directory)  # before the manifests: what is listed after that is void
        lists = [one.header for one in listed]
        manifests, left_out, foreign = find_manifests(app_repository)
        collected = _collected(app_repository, manifests, listed, named)
    collection = max(known.get("collection", 0), _last_collection(manifests.values(), lists)) + jump()
    known = {  # a collection swaps the head without a manifest
        "epoch": max([known.get("epoch", 0), *(one.epoch for one in lists)]),
        "generation": max([known.get("generation", 0), *(one.generation for one in lists)]),
    }
    for name in collected:
        del manifests[name]
        left_out.append(ExcludedSnapshot(name, _COLLECTED, "collected"))
    if before is not None:
        known_names = {*manifests, *(one.snapshot for one in left_out)}
        gone = (entry.snapshot for entry in before.head.snapshots if entry.snapshot not in known_names)
        left_out += [ExcludedSnapshot(one, _GONE, "blob-missing") for one in gone]
    if not manifests and foreign:
        raise _foreign_manifests(app_repository, foreign)
    is_empty = not manifests and all(one.code == "blob-name-invalid" for one in left_out)
    if is_empty and expected is None and not app_repository.has_lost_head():
        there = [name for name in app_repository.applications() if name != app_repository.application_id]
        others = f" It has files of {shortened_list(there)}." if there else " It has no other application."
        raise NotFound(
            f"There is neither a head nor a manifest of {app_repository.application_id} in "
            f"{app_repository.url}.{others}",
            code="application-not-found",
            action="Check the application id and the repository.",
            applications=there[:10],
            application_id=app_repository.application_id,
            repository=app_repository.url,
        )
    usable: dict[str, FoundManifest] = {}
    with SnapshotVerification(app_repository, files=True, tolerated=(Corrupted,)) as verification:
        for name, found in manifests.items():
            damage = verification.damage(found.manifest)
            if damage:
                left_out.append(ExcludedSnapshot(name, _describe(damage), _code(damage)))
            else:
                usable[name] = found
            advance()
    newest = newest_of(usable, manifests, None if before is None else before.head)
    other_branch = [
        name for name, found in usable.items() if newest is not None and found.order > newest.order and name not in pins
    ]
    left_out += [ExcludedSnapshot(name, _OTHER_BRANCH, "other-branch") for name in other_branch]
    below = {name: found for name, found in usable.items() if newest is not None and found.order <= newest.order}
    chain = chain_of(below, manifests)
    pinned = [found for name, found in usable.items() if name in pins]
    chain = with_pinned(chain, pinned) if before is None else with_pins_of_branches(chain, pinned)
    counted, rivals = {found.manifest.snapshot for found in chain}, {one.order[:2]: one for one in reversed(chain)}
    for name in sorted(usable.keys() - counted - {*other_branch}):
        rival = rivals.get(usable[name].order[:2])
        why = "no published snapshot refers to it"
        if rival is not None:
            why += f": {rival.manifest.snapshot} was published instead"
        left_out.append(ExcludedSnapshot(name, why, "not-connected" if rival is None else "superseded"))
    entries, older = head_entries(app_repository, chain, pins, kept.keep)
    left_out += [ExcludedSnapshot(name, _OLDER, "older") for name in older]
    head = next_head(
        app_repository, entries, manifests.values(), known, collection, None if before is None else before.head
    )
    head = replace(head, keep=kept.keep, needs=kept.needs)
    document = encoded_head(head, None if before is None else before.raw)
    return HeadRepairPlan(wrong, head, tuple(left_out), document, expected, code)


def _collected(
    app_repository: ApplicationRepository,
    manifests: Mapping[str, FoundManifest],
    lists: Sequence[ListedGarbage],
    named: Collection[str],
) -> list[str]:
    """Snapshots whose blobs are being deleted, by lists of garbage.

    No head names a manifest up to the one of a list that it did not name. But where a head has gone back, that of the
    other branch made the list, so what this one names, or pins, is compared blob by blob.
    """
    found = [name for name, one in manifests.items() if any(each.header.excludes(one.manifest) for each in lists)]
    if not any(name in named for name in found):
        return found
    garbage = NameSet(name for one in lists for name, _ in one.garbage)
    return [
        name for name in found if name not in named or _is_listed(app_repository, manifests[name].manifest, garbage)
    ]


def _is_listed(app_repository: ApplicationRepository, manifest: Manifest, garbage: NameSet) -> bool:
    try:
        return any(name in garbage for name in names_of_snapshot(app_repository, manifest, set()))
    except (Corrupted, NotFound):
        return False  # the verification says what is wrong with it


def _foreign_manifests(app_repository: ApplicationRepository, foreign: Sequence[Invalid]) -> Invalid:
    """The error where all manifests are from elsewhere, so the new head would be empty."""
    own = app_repository.repository.descriptor.id
    ids = sorted({one.context["found_repository_id"] for one in foreign} - {own})
    if not ids:
        applications = sorted({one.context["found_application_id"] for one in foreign})
        return Invalid(
            f"All manifests of {app_repository.application_id} in {app_repository.url} that can be read are of "
            f"{shortened_list(applications, 5)}. Nothing was changed: the new head would be empty.",
            code=FOREIGN_MANIFEST,
            action=f"{SAME_BUT_FOR_CASE} If the manifests were copied here, move them away and run this again: "
            f"{app_repository.repair_command} --apply",
            repository_id=own,
            application_id=app_repository.application_id,
            found_application_ids=applications[:5],
            repository=app_repository.url,
        )
    init = shlex.join(["statecore", "repo", "init", "--repository", app_repository.url])
    return Invalid(
        f"All manifests of {app_repository.application_id} in {app_repository.url} that can be read are of the "
        f"repository {shortened_list(ids, 5)}, and this one is {own}. "
        "Nothing was changed: the new head would be empty.",
        code="repository-id-mismatch",
        action=f"If the repository descriptor was lost and replaced, delete {DESCRIPTOR_NAME} there and run init, "
        f"which restores the id that heads and manifests carry ({init}). If the manifests were copied here, move them "
        f"away and run this again: {app_repository.repair_command} --apply",
        repository_id=own,
        found_repository_ids=ids[:5],
        application_id=app_repository.application_id,
        repository=app_repository.url,
    )


def _last_collection(manifests: Iterable[FoundManifest], lists: Iterable[GarbageList]) -> int:
    """The greatest collection number that a manifest or a list of garbage has."""
    blobs = (reference.extent.blob for one in manifests for reference in one.manifest.task_manifests)
    return max([0, *(collection_of(blob) or 0 for blob in blobs), *(one.collection for one in lists)])


def _code(damage: Mapping[str, Damage]) -> str:
    return next(iter(damage.values())).code


def _describe(damage: Mapping[str, Damage]) -> str:
    first = next(iter(damage.values())).what
    return first if len(damage) == 1 else f"{first} {len(damage) - 1} other tasks of it are damaged, too."
