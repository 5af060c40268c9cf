"""Rebuilds a lost or damaged head from the manifests, which are never changed (``docs/repository-format.md``).

Each manifest records epoch and generation of the head it was made for, and the snapshot that was newest before it::

    generation 7, previous 6 ──▶ generation 6, previous 5 ──▶ generation 5, previous 4 ──▶ ...
    generation 6, previous 5     lost its race for the head, and no manifest refers to it: left out

**Without a head** a manifest is usable if its seal holds, its task manifests can be read and their files exist. Where
one cannot be used, its own previous one is next; where it cannot be read, the newest of those before it. One that was
put just before its writer died cannot be told from a published one: what it names is complete all the same. Pins are
recorded in the head alone, and are lost with it.

**With a head** that can be read, it alone decides which snapshots are published. It is rebuilt without those whose
manifest or task manifests are damaged, because publications have to read these.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

from statecore.documents import DocumentType, parse_json
from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.formats.integers import min_known
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.garbage import GarbageList, garbage_headers
from statecore.repository.head import HEAD, Head, ReadHead, Retention, SnapshotEntry, decoded_head, encoded_head
from statecore.repository.layout import collection_of
from statecore.repository.manifest import MANIFEST, Manifest, new_bytes
from statecore.repository.needs import UNSUPPORTED
from statecore.repository.repository import DESCRIPTOR_NAME, check_descriptor_unchanged
from statecore.repository.retention import retained_entries
from statecore.repository.verification import CONCURRENT_REQUESTS, Damage, Verification

_GREATEST = 1 << 53  # Numbers of a damaged head that are not below this are ignored
_UNNAMED = "the head that is there does not name it"
_COLLECTED = "the head did not name it any more, and its blobs are being deleted"
_OLDER = "it is older than the checkpoints and compactions that a head names"


class ExcludedSnapshot(NamedTuple):
    """A manifest, or a snapshot, that the new head does not name."""

    snapshot: str  # its id, from the manifest's name
    why: str  # the reason
    # the code of an error, or not-named, older, deleted, copy, superseded (another one was published instead),
    # not-connected, collected
    code: str


@dataclass(frozen=True)
class HeadRepairPlan:
    """What a repair would do."""

    problem: str | None  # what is wrong with the head; None where no repair is needed
    head: Head  # the new head; the present one where no repair is needed
    excluded: tuple[ExcludedSnapshot, ...]  # what that head does not name
    document: bytes  # the bytes of the new head; empty where no repair is needed
    expected: str | None  # the version of the head that was read; None where there was none
    code: str = ""  # the code of what is wrong; empty where no repair is needed


class _Found(NamedTuple):
    """A manifest and its hex SHA-256."""

    manifest: Manifest
    sha256: str

    @property
    def order(self) -> tuple[int, int, str, str]:
        one = self.manifest
        return one.epoch, one.generation, one.created_at, one.snapshot


def plan_repair(app_repository: ApplicationRepository, advance: Callable[[], None] = lambda: None) -> HeadRepairPlan:
    """Inspect a head and plan its repair; ``advance`` is called for each snapshot. Nothing is changed."""
    app_repository.repository.check_primary()
    pointed = app_repository.pointers.read(app_repository.names.head)
    if pointed is None:
        return _plan_of_manifests(app_repository, ("it is missing", "head-missing"), None, {}, advance)
    _refuse_other_release(HEAD, pointed.content)
    try:
        found = decoded_head(
            pointed.content,
            app_repository.repository.descriptor.id,
            app_repository.application_id,
            app_repository.repair_command,
        )
    except (Corrupted, Invalid) as error:
        if error.code == UNSUPPORTED:
            raise
        return _plan_of_manifests(
            app_repository, (error.what, error.code), pointed.version, _salvaged(pointed.content), advance
        )
    return _plan_of_readable_head(app_repository, ReadHead(found.value, found.raw, pointed.version), advance)


def apply_repair(app_repository: ApplicationRepository, plan: HeadRepairPlan) -> None:
    """Swap the head as planned."""
    if plan.problem is None:
        return
    check_descriptor_unchanged(app_repository.repository)
    if app_repository.pointers.swap(app_repository.names.head, plan.document, plan.expected) is None:
        found = app_repository.pointers.read(app_repository.names.head)
        if found is not None and found.content == plan.document:
            return
        raise Fenced(
            f"The head of {app_repository.application_id} was swapped by another process during the inspection; "
            "nothing was changed.",
            code="head-changed",
            action=f"List the snapshots: {app_repository.list_command}; then, where that is still needed: "
            f"{app_repository.repair_command}",
            application_id=app_repository.application_id,
            repository=app_repository.url,
        )


def _plan_of_readable_head(
    app_repository: ApplicationRepository, read: ReadHead, advance: Callable[[], None]
) -> HeadRepairPlan:
    """Plan for a readable head: without the snapshots that cannot be read."""
    with Verification(app_repository, tolerated=(Corrupted,)) as verification:
        verified = verification.snapshots(read.head.snapshots, advance)
    damaged = [
        ExcludedSnapshot(one.entry.snapshot, _describe(one.damage), _code(one.damage)) for one in verified if one.damage
    ]
    named = {entry.snapshot for entry in read.head.snapshots}
    if not damaged:
        there = [
            _snapshot_of_name(app_repository, blob.name)
            for blob in app_repository.blobs.list(app_repository.names.manifests)
        ]
        unnamed = tuple(ExcludedSnapshot(one, _UNNAMED, "not-named") for one in there if one not in named)
        return HeadRepairPlan(None, read.head, unnamed, b"", read.version)
    manifests, unread, _ = _manifests(app_repository)
    others = [ExcludedSnapshot(one, _UNNAMED, "not-named") for one in sorted(manifests) if one not in named]
    whole = tuple(one.entry for one in verified if not one.damage)
    head = _next_head(
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
) -> HeadRepairPlan:
    """Plan a head from the manifests; ``problem`` is what is wrong with the old one, and its code."""
    wrong, code = problem
    lists = garbage_headers(app_repository)  # before the manifests: what is listed after that is void
    manifests, left_out, foreign_ids = _manifests(app_repository)
    collection = _last_collection(manifests.values(), lists) + 1
    known = {  # a collection swaps the head without a manifest
        "epoch": max([known.get("epoch", 0), *(one.epoch for one in lists)]),
        "generation": max([known.get("generation", 0), *(one.generation for one in lists)]),
    }
    for name in [name for name, one in manifests.items() if any(each.excludes(one.manifest) for each in lists)]:
        del manifests[name]
        left_out.append(ExcludedSnapshot(name, _COLLECTED, "collected"))
    if not manifests and foreign_ids:
        raise _foreign_manifests(app_repository, foreign_ids)
    if not manifests and not left_out and expected is None:
        there = [name for name in app_repository.applications() if name != app_repository.application_id]
        others = f" It has files of {', '.join(there[:10])}." if there else " It has no other application."
        raise NotFound(
            f"There is neither a head nor a manifest of {app_repository.application_id} in "
            f"{app_repository.url}.{others}",
            code="application-not-found",
            action="Check the application id and the repository.",
            applications=there[:10],
            application_id=app_repository.application_id,
            repository=app_repository.url,
        )
    usable: dict[str, _Found] = {}
    with Verification(app_repository, files=True, tolerated=(Corrupted,)) as verification:
        for name, found in manifests.items():
            damage = verification.damage(found.manifest)
            if damage:
                left_out.append(ExcludedSnapshot(name, _describe(damage), _code(damage)))
            else:
                usable[name] = found
            advance()
    chain = _chain(usable, manifests)
    counted = {found.manifest.snapshot for found in chain}
    for name in sorted(usable.keys() - counted):
        rival = next((one for one in chain if one.order[:2] == usable[name].order[:2]), None)
        why = "no published snapshot refers to it"
        if rival is not None:
            why += f": {rival.manifest.snapshot} was published instead"
        left_out.append(ExcludedSnapshot(name, why, "not-connected" if rival is None else "superseded"))
    entries, older = _entries(app_repository, chain)
    left_out += [ExcludedSnapshot(name, _OLDER, "older") for name in older]
    head = _next_head(app_repository, entries, manifests.values(), known, collection)
    return HeadRepairPlan(wrong, head, tuple(left_out), encoded_head(head, None), expected, code)


def _foreign_manifests(app_repository: ApplicationRepository, ids: Sequence[str]) -> Invalid:
    """The error where all manifests are of other repositories, so the new head would be empty."""
    init = shlex.join(["statecore", "repo", "init", "--repository", app_repository.url])
    return Invalid(
        f"All manifests of {app_repository.application_id} in {app_repository.url} that can be read are of the "
        f"repository {', '.join(ids[:5])}, and this one is {app_repository.repository.descriptor.id}. "
        "Nothing was changed: the new head would be empty.",
        code="repository-id-mismatch",
        action=f"If the repository descriptor was lost and replaced, delete {DESCRIPTOR_NAME} there and run init, "
        f"which restores the id that heads and manifests carry ({init}). If the manifests were copied here, move them "
        f"away and run this again: {app_repository.repair_command} --apply",
        repository_id=app_repository.repository.descriptor.id,
        found_repository_ids=list(ids[:5]),
        application_id=app_repository.application_id,
        repository=app_repository.url,
    )


def _manifests(app_repository: ApplicationRepository) -> tuple[dict[str, _Found], list[ExcludedSnapshot], list[str]]:
    """Readable manifests of this application by snapshot, newest first; the others; ids of other repositories found."""
    names = [blob.name for blob in app_repository.blobs.list(app_repository.names.manifests)]
    found: list[_Found] = []
    left_out: list[ExcludedSnapshot] = []
    others: set[str] = set()
    with ThreadPoolExecutor(CONCURRENT_REQUESTS, "statecore-verify") as pool:
        for name, content in zip(names, pool.map(lambda name: _content(app_repository, name), names), strict=True):
            snapshot = _snapshot_of_name(app_repository, name)
            if content is None:
                left_out.append(ExcludedSnapshot(snapshot, "it was deleted during the inspection", "deleted"))
                continue
            _refuse_other_release(MANIFEST, content)
            try:
                manifest = MANIFEST.decode(content)
                if manifest.repository_id != app_repository.repository.descriptor.id:
                    others.add(manifest.repository_id)
                app_repository.check_own(manifest)
            except Invalid as error:
                left_out.append(ExcludedSnapshot(snapshot, error.what, error.code))
                continue
            manifest.needs.check_readable(f"The manifest of snapshot {snapshot}")
            if app_repository.names.manifest(manifest.snapshot) != name:
                left_out.append(
                    ExcludedSnapshot(snapshot, f"it is a copy of the manifest of {manifest.snapshot}", "copy")
                )
                continue
            found.append(_Found(manifest, sha256(content).hexdigest()))
    found.sort(key=lambda one: one.order, reverse=True)
    return {one.manifest.snapshot: one for one in found}, left_out, sorted(others)


def _snapshot_of_name(app_repository: ApplicationRepository, name: str) -> str:
    """The snapshot id in a manifest's name."""
    return name.removeprefix(app_repository.names.manifests).removesuffix(".json")


def _content(app_repository: ApplicationRepository, name: str) -> bytes | None:
    try:
        return app_repository.blobs.get(name)
    except NotFound:
        return None


def _chain(usable: Mapping[str, _Found], manifests: Mapping[str, _Found]) -> list[_Found]:
    """The newest manifest and its predecessors, newest first; both arguments are sorted newest first."""
    chain: list[_Found] = []
    following = next(iter(usable.values()), None)
    while following is not None:
        chain.append(following)
        last, previous = following, following.manifest.previous
        seen = {last.manifest.snapshot}
        unusable = manifests.keys() - usable.keys()  # readable, and damaged below
        while previous is not None and previous in unusable - seen:
            seen.add(previous)
            last, previous = manifests[previous], manifests[previous].manifest.previous
        if previous is None:
            break
        before = [one for one in usable.values() if one.order < min(last.order, chain[-1].order)]
        following = next((one for one in before if one.manifest.snapshot == previous), None)
        if following is None:  # the predecessor of a manifest that cannot be read is unknown
            following = next((one for one in before if one.order[:2] < last.order[:2]), None)
    return chain


def _entries(
    app_repository: ApplicationRepository, chain: Sequence[_Found]
) -> tuple[tuple[SnapshotEntry, ...], list[str]]:
    """Head entries for a chain; and the snapshots that retention leaves out."""
    before = {one.manifest.snapshot: older.manifest for one, older in pairwise(chain)}
    found = {one.manifest.snapshot: one.manifest for one in chain}
    entries = [
        SnapshotEntry(
            one.manifest.snapshot,
            one.sha256,
            one.manifest.identity,
            one.manifest.created_at,
            min_known(reference.read_at_ms for reference in one.manifest.task_manifests),
            one.manifest.request_id,
            one.manifest.origin,
            len(one.manifest.task_manifests),
            one.manifest.file_bytes,
            new_bytes=0,
        )
        for one in chain
    ]
    kept = tuple(
        replace(entry, new_bytes=_new_bytes(app_repository, found[entry.snapshot], before.get(entry.snapshot)))
        for entry in retained_entries(entries, Retention())
    )
    return kept, sorted(found.keys() - {entry.snapshot for entry in kept})


def _new_bytes(app_repository: ApplicationRepository, manifest: Manifest, before: Manifest | None) -> int:
    """Bytes of the files that the snapshot before it does not name."""
    older = {} if before is None else {reference.task: reference for reference in before.task_manifests}
    changed = [
        reference
        for reference in manifest.task_manifests
        if reference.task not in older or older[reference.task].sha256 != reference.sha256
    ]

    now, known = (
        app_repository.task_manifests(changed),
        app_repository.task_manifests([older[reference.task] for reference in changed if reference.task in older]),
    )
    return new_bytes([read.manifest for read in now.values()], [read.manifest for read in known.values()])


def _next_head(
    app_repository: ApplicationRepository,
    entries: tuple[SnapshotEntry, ...],
    manifests: Any,
    known: Mapping[str, int],
    collection: int,
    before: Head | None = None,
) -> Head:
    """A head with the next epoch and generation above all known."""
    found = [one.manifest for one in manifests]
    epoch = max([known.get("epoch", 0), *(one.epoch for one in found)])
    generation = max([known.get("generation", 0), *(one.generation for one in found)])
    return Head(
        app_repository.repository.descriptor.id,
        app_repository.application_id,
        epoch + 1,
        generation + 1,
        entries,
        collection,
        *((before.collection_began_ms, before.keep, before.needs) if before else ()),
    )


def _last_collection(manifests: Iterable[_Found], lists: Iterable[GarbageList]) -> int:
    """The greatest collection number that a manifest or a list of garbage has."""
    blobs = (reference.extent.blob for one in manifests for reference in one.manifest.task_manifests)
    return max([0, *(collection_of(blob) or 0 for blob in blobs), *(one.collection for one in lists)])


def _code(damage: Mapping[str, Damage]) -> str:
    return next(iter(damage.values())).code


def _describe(damage: Mapping[str, Damage]) -> str:
    first = next(iter(damage.values())).what
    return first if len(damage) == 1 else f"{first} {len(damage) - 1} other tasks of it are damaged, too."


def _salvaged(content: bytes) -> dict[str, int]:
    """Epoch and generation from a damaged head, where readable."""
    try:
        document = parse_json(content)
    except ValueError:
        return {}
    if not isinstance(document, Mapping):
        return {}
    return {
        name: value
        for name in ("epoch", "generation")
        if type(value := document.get(name)) is int and 0 <= value < _GREATEST
    }


def _refuse_other_release(kind: DocumentType[Any], content: bytes) -> None:
    """Refuse with ``Invalid`` an intact document of another version, rather than decide without it."""
    if kind.seal_holds(content):
        kind.check_version(parse_json(content))
