"""Validates fetched snapshots of a campaign with real Kafka Streams."""

from __future__ import annotations

from dataclasses import replace

from statecore.formats.kinds import StoreKind
from statecore.formats.rows.versions import LATEST_SEGMENT, decode_versions
from statecore.jobs.fields.catalog import VersionedStart
from tests.harness import topics
from tests.harness.rebuilding import Answers, Rows, restored
from tests.harness.snapshot_application import EXACTLY_ONCE
from tests.harness.snapshot_campaign import Campaign
from tests.harness.snapshot_checkpoints import checkpoint_of, loose_stores
from tests.harness.snapshot_content import differences
from tests.harness.sources import RETENTION
from tests.harness.streams import StreamsApplication


def validate(campaign: Campaign, versioned: VersionedStart = VersionedStart.LATEST) -> None:
    """Kafka Streams restores all by itself, then opens what was fetched: it restores nothing, and answers the same.

    What it opened is where the world has its state directory afterwards.

    Args:
        campaign: what was published, and where.
        versioned: what versioned stores find there; ``history`` has Kafka Streams restore these, and only these.
    """
    campaign.append()
    campaign.consume(all_of_it=True)
    if campaign.more.random() < 0.5 and not loose_stores(campaign):
        checkpoint_of(campaign, {"versioned": VersionedStart.LATEST}, versioned_interval=1)
    else:
        campaign.publish_of({"versioned": VersionedStart.LATEST})
    campaign.take()
    fetched = campaign.directory()
    campaign.tell(f"validated over what was fetched of {campaign.newest}")
    campaign.fetch_into(fetched, campaign.newest, versioned=versioned)

    with _application(campaign) as running:
        assert restored(running)
        answers = _answers(campaign, running)
    rows = campaign.world.rows()
    # Its own restore puts the rows of a grace buffer where the buffer does not look for them (it takes their keys for
    # those of windows, and turns them around): they are compared with what the buffer itself writes.
    rows |= _buffers(campaign)
    campaign.world.state_dir = fetched
    ours = campaign.world.rows()
    apart = {
        store
        for store, kind in campaign.kinds.items()
        if kind == "in-memory" or (kind.startswith("versioned") and versioned is VersionedStart.HISTORY)
    }
    rows = _without_what_came_back(campaign, rows, ours)
    different = {key: how for key, how in differences(ours, rows).items() if key[1].partition("/")[0] not in apart}
    assert not different, f"fetched, and restored by Kafka Streams: {different}"
    with _application(campaign) as running:
        assert set(restored(running)) <= apart
        found = _answers(campaign, running)
    _compare(campaign, found, answers, without_history=versioned is VersionedStart.LATEST)


def go_on(campaign: Campaign, *, opened: bool = True) -> None:
    """Kafka Streams restores later records; what it leaves is published and fetched, and is exactly that.

    Args:
        campaign: one that was validated.
        opened: whether Kafka Streams opens what was fetched.
    """
    left = campaign.world.state_dir
    campaign.append()
    campaign.consume(all_of_it=True)
    with _application(campaign) as running:
        answers = _answers(campaign, running) if opened else {}
    content = campaign.content(left, campaign.expected[campaign.newest])
    # Which late rows still count, and which versions there are, depends on where Kafka Streams has begun.
    kinds = {key[1]: StoreKind(campaign.kinds[key[1]]) for key in content}
    plain = tuple(store for store, kind in kinds.items() if not kind.is_segmented and not kind.is_versioned)
    for key, one in campaign.rebuilt({"stores": plain}).items() if plain else ():
        assert (key, one.rows, one.digest) == (key, content[key].rows, content[key].digest)
    assert campaign.take_from(left, content)
    campaign.world.state_dir = fetched = campaign.directory()
    campaign.fetch_into(fetched, campaign.newest)
    if opened:
        with _application(campaign) as running:
            assert set(restored(running)) <= {store for store, kind in campaign.kinds.items() if kind == "in-memory"}
            # Which past a versioned store answers depends on the stream time, which it has of the restored tail alone.
            _compare(campaign, _answers(campaign, running), answers, without_history=True)


def _deleted(campaign: Campaign, store: str, partition: int) -> set[bytes]:
    """The keys of a versioned store that were deleted once; none of another store."""
    if not campaign.kinds[store].startswith("versioned"):
        return set()
    records = topics.read(campaign.world.servers, campaign.topics[store], partition)
    return {record.key for record in records if record.key is not None and record.value is None}


def _without_what_came_back(campaign: Campaign, rows: Rows, ours: Rows) -> Rows:
    """What Kafka Streams has restored, without values that were deleted longer ago than versions are kept.

    Its restore forgets such deletes, and then takes older values that come late, or ends what was deleted only where
    the next put or delete comes (``statecore.images.versions``).
    """
    found = dict(rows)
    for (task, name), families in rows.items():
        if not campaign.kinds.get(name, "").startswith("versioned"):
            continue
        deleted = _deleted(campaign, name, int(task.partition("_")[2]))
        there = {family: dict(some) for family, some in ours.get((task, name), {}).items()}
        found[task, name] = {
            family: [
                (key, value if key[8:] not in deleted else _without_older(key, value, there.get(family, {})[key]))
                for key, value in some
                if key in there.get(family, {}) or key[8:] not in deleted
            ]
            for family, some in families.items()
        }
    return found


def _without_older(key: bytes, value: bytes, ours: bytes) -> bytes:
    """The row of ours, where another has the same versions, and only older ones besides."""
    segment = int.from_bytes(key[:8], signed=True)
    if segment == LATEST_SEGMENT:
        return value
    first = decode_versions(segment, ours)[0].valid_from
    here, there = ({one for one in decode_versions(segment, row) if one.value is not None} for row in (ours, value))
    older = all(one.valid_to is not None and one.valid_to <= first for one in there - here)
    return ours if here <= there and older else value


def _buffers(campaign: Campaign) -> Rows:
    """The rows of grace buffers, as the store itself would have written them."""
    world = campaign.world
    isolation = "read_committed" if world.guarantee == EXACTLY_ONCE else "read_uncommitted"
    found: Rows = {}
    for task, store in campaign.expected[campaign.newest]:
        if campaign.kinds[store] == "grace-buffer":
            partition = int(task.partition("_")[2])
            there: dict[bytes, bytes] = {}
            for one in topics.read(world.servers, campaign.topics[store], partition, isolation):
                assert one.key is not None
                there.pop(one.key, None)
                if one.value is not None:
                    there[one.key] = one.value[:-8]  # all but the time of the row, which stands in its key
            found[task, f"{store}/{store}.0"] = {"default": sorted(there.items())}
    return found


def _application(campaign: Campaign) -> StreamsApplication:
    made = campaign.world.application()
    made.stores = {}
    return made


def _answers(campaign: Campaign, running: StreamsApplication) -> Answers:
    """What every store that can be asked answers; of what expires, as far as every instance still answers it."""
    found: Answers = {}
    for case in campaign.cases.values():
        if case.query is None:
            continue
        for partition in [None] if case.is_global else range(campaign.partitions):
            newest = max(campaign.histories[case.store, one].newest for one in range(campaign.partitions))
            keys = campaign.histories[case.store, partition or 0].keys if case.query.shape == "versioned" else ()
            since = max(0, newest - RETENTION + 1) if case.expires else 0
            running.stores = {case.store: replace(case.query, since=since, keys=keys)}
            found[case.store, partition] = running.query_rows(case.store, partition)
    return found


def _compare(campaign: Campaign, found: Answers, answers: Answers, *, without_history: bool) -> None:
    for key, expected in answers.items():
        if campaign.kinds[key[0]].startswith("versioned") and without_history:
            deleted = _deleted(campaign, key[0], key[1] or 0)
            there = {row[0] for row in found[key]}
            latest = [
                [row for row in rows if b"@" not in row[0] and (row[0] in there or row[0] not in deleted)]
                for rows in (found[key], expected)
            ]
            assert (key, latest[0]) == (key, latest[1])
        else:
            assert found[key] == expected, f"{key}: {found[key]} != {expected}"
