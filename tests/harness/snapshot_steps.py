"""The steps of a campaign: its own, and directories that are written over, and blobs that are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Extent
from tests.harness.snapshot_campaign import Campaign
from tests.harness.snapshot_checkpoints import advance, go_on_by_checkpoints


def publish_over(campaign: Campaign) -> None:
    """Publish while a directory that was fetched is replaced, all of it or some; then publish the directory itself."""
    chance = campaign.more
    snapshot = chance.choice(sorted(campaign.expected))
    state_dir = campaign.directory()
    campaign.tell(f"publish over {state_dir}, fetched of {snapshot}")
    campaign.fetch_into(state_dir, snapshot, snapshot=snapshot)
    before = campaign.expected[snapshot]
    what: dict[str, Any] = {"versioned": VersionedStart.LATEST}
    if chance.random() < 0.3:
        what["partitions"] = (chance.randrange(campaign.partitions),)
    if chance.random() < 0.5:
        what["stores"] = tuple(chance.sample(names := sorted({store for _, store in before}), min(2, len(names))))
    content = {**before, **campaign.publish_of(what, state_dir)}
    assert campaign.content(state_dir, content) == content
    if snapshot in campaign.whole:
        campaign.take_from(state_dir, content)
    shutil.rmtree(state_dir)


def fetch_over(campaign: Campaign) -> None:
    """Fetch a snapshot over another one: what is there is kept, unless it is to be replaced."""
    chance = campaign.more
    first, second = (chance.choice(sorted(campaign.expected)) for _ in range(2))
    state_dir = campaign.directory()
    campaign.tell(f"fetch {second} over {first} in {state_dir}")
    campaign.fetch_into(state_dir, first, snapshot=first)
    there, other = campaign.expected[first], campaign.expected[second]
    kept = campaign.fetch_into(state_dir, second, snapshot=second).kept
    assert {task for task, store in there if (task, store) in other} <= set(kept)
    content = {**there, **{key: one for key, one in other.items() if key[0] not in kept}}
    assert campaign.content(state_dir, content) == content
    campaign.fetch_into(state_dir, second, snapshot=second, replace=True, planned=True)
    content = {**there, **other}
    assert campaign.content(state_dir, content) == content
    shutil.rmtree(state_dir)


def damage(campaign: Campaign) -> None:
    """A blob of the newest snapshot is damaged: the next older one that is whole is fetched, or none.

    A job that has the damaged data publishes it again, and that can be fetched. In S3 no job sees a bit that has
    turned in a pack of which not all files are at hand (``statecore.repository.blob_verification``).
    """
    chance = campaign.more
    app_repository = ApplicationRepository.open(campaign.url, campaign.application_id)
    order = [entry.snapshot for entry in app_repository.head().snapshots]
    needed = {snapshot: _needed(app_repository, snapshot) for snapshot in order}
    target = chance.choice(sorted(needed[order[0]], key=lambda one: (one.blob, one.start)))
    way = chance.choice(("flipped", "cut", "gone"))
    hurt = target.start + chance.randrange(target.bytes)
    hit = [snapshot for snapshot in order if any(_is_hit(one, target, hurt, way) for one in needed[snapshot])]
    left = [snapshot for snapshot in order if snapshot not in hit]
    campaign.tell(f"{target.blob} is {way} at {hurt}: it is in {', '.join(hit)}")
    state_dir, source = campaign.directory(), None
    seen = ("files/",) if way == "flipped" and app_repository.url.startswith("s3:") else ("files/", "packs/")
    if target.blob.removeprefix(app_repository.names.root).startswith(seen) and campaign.newest in campaign.whole:
        campaign.fetch_into(source := campaign.directory(), campaign.newest)
    with _damaged(app_repository, target.blob, hurt, way):
        _refused(campaign, state_dir, order[0])
        if left:
            campaign.fetch_into(state_dir, left[0], skipped=order[: order.index(left[0])])
        else:
            _refused(campaign, state_dir, None)
        shutil.rmtree(state_dir, ignore_errors=True)
        if source is not None:
            campaign.take_from(source, campaign.expected[campaign.newest], planned=False)
            campaign.fetch_into(state_dir, campaign.newest)
            shutil.rmtree(state_dir)


def _refused(campaign: Campaign, state_dir: Path, snapshot: str | None) -> None:
    request = FetchRequest(
        repository=campaign.url,
        application_id=campaign.application_id,
        state_dir=str(state_dir),
        versioned=VersionedStart.LATEST,
        **({"snapshot": snapshot} if snapshot else {}),
    )
    with pytest.raises(Corrupted):
        run_fetch(request)
    assert not list((state_dir / campaign.application_id).glob("[0-9g]*"))


def _needed(app_repository: ApplicationRepository, snapshot: str) -> set[Extent]:
    """All that is read of a snapshot: its manifest, its task manifests, and one place of each of its files."""
    entry = app_repository.head().entry(snapshot)
    assert entry is not None
    name = app_repository.names.manifest(snapshot)
    references = app_repository.manifest(entry).value.task_manifests
    files = {
        digest: extent
        for read in app_repository.task_manifests(references).values()
        for store in read.manifest.stores
        for digest, extent in store.extents
    }
    manifest = Extent(name, 0, app_repository.blobs.head(name).size)
    return {one for one in (manifest, *(one.extent for one in references), *files.values()) if one.bytes}


def _is_hit(one: Extent, target: Extent, hurt: int, way: str) -> bool:
    if one.blob != target.blob:
        return False
    end = one.start + one.bytes
    return way == "gone" or (end > hurt and (way == "cut" or one.start <= hurt))


@contextmanager
def _damaged(app_repository: ApplicationRepository, blob: str, at: int, way: str) -> Iterator[None]:
    blobs = app_repository.blobs
    whole = blobs.get(blob)
    blobs.delete(blob)
    if way != "gone":
        rest = b"" if way == "cut" else bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert blobs.put_if_absent(blob, whole[:at] + rest)
    yield
    blobs.delete(blob)
    assert blobs.put_if_absent(blob, whole)


_IN_TURN = (publish_over, fetch_over, damage)


def in_turn(campaign: Campaign) -> None:
    """One of these in each round, as soon as there may be older snapshots; three seeds of two rounds have them all."""
    if campaign.round:
        _IN_TURN[(campaign.seed + campaign.round) % len(_IN_TURN)](campaign)


STEPS: Sequence[Callable[[Campaign], None]] = (
    Campaign.append,
    Campaign.compact,
    Campaign.publish,
    Campaign.take,
    go_on_by_checkpoints,
    advance,
    Campaign.fetch,
    in_turn,
)
"""What happens in each round, in this order; each step decides by chance whether and how."""
