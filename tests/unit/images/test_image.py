import ast
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

import statecore
from statecore.errors import Corrupted, Invalid
from statecore.filesystem import FileState, file_sha256
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.images import image
from statecore.images.digest import EMPTY
from statecore.images.image import build_image
from statecore.images.model import ROW_VERSION, BaseDatabases, Run, StoreDigest
from statecore.images.universal_compaction import sorted_runs
from statecore.stores.rocksdb.manifest_guard import RECORD_FILE
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.raising import raises
from tests.harness.reference_digest import digest_of
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import RECORDS, CuttingRunBuilder, Record, batches, expected_rows, stored_rows
from tests.unit.images.test_universal_compaction import as_they_are

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 3)


def runs_of(path: Path, records: list[Record] = RECORDS, *, rows: int = 6000) -> list[Run]:
    """One run for each batch of ``rows`` records, so that they overlap when there is more than one."""
    path.mkdir(parents=True)
    builder = CuttingRunBuilder(KIND, path, memory_budget=1, base=BaseDatabases.NONE)
    for part in batches(records, rows):
        builder.add(part)
    return builder.finish()


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def flip(path: Path, at: int) -> None:
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("rows", [6000, 2000, 1000, 500])
def test_an_image_has_the_last_rows_and_the_offset_however_many_runs_made_it(tmp_path: Path, rows: int) -> None:
    image = build_image(tmp_path / "image", KIND, runs_of(tmp_path / "runs", rows=rows), {CHANGELOG: 5999})
    expected = expected_rows(KIND, RECORDS)
    assert stored_rows(tmp_path / "image", KIND) == sorted(expected.items())
    assert (image.rows, image.offsets, image.digest) == (
        len(expected),
        {str(CHANGELOG): 5999},
        digest_of(expected.items()),
    )
    assert verify_image(tmp_path / "image", KIND, [CHANGELOG], identity=image.identity) == image


def test_a_few_overlapping_runs_stay_and_more_are_merged(tmp_path: Path) -> None:
    few = runs_of(tmp_path / "few", rows=2000)
    more = runs_of(tmp_path / "more", rows=1500)
    many = runs_of(tmp_path / "many", rows=500)
    assert (len(few), len(more), len(many)) == (3, 4, 12)
    hashes = {}
    for name, runs in (("few", few), ("more", more), ("many", many)):
        build_image(tmp_path / "images" / name, KIND, runs, {CHANGELOG: 1})
        files = {file_sha256(file) for file in (tmp_path / "images" / name).glob("*.sst")}
        hashes[name] = files & {run.sha256 for run in runs}
        assert len(files) == 4  # three of the data, and one of the offsets family
        assert len({verify_image(tmp_path / "images" / name, KIND, [CHANGELOG]).digest}) == 1
    assert hashes["few"] == {run.sha256 for run in few}
    assert hashes["more"] == {run.sha256 for run in more[2:]}, "as few bytes are written as possible"
    assert hashes["many"] == {run.sha256 for run in many[10:]}
    digests = {verify_image(tmp_path / "images" / name, KIND, [CHANGELOG]).digest for name in hashes}
    assert digests == {digest_of(expected_rows(KIND, RECORDS).items())}


def test_neither_building_nor_inspecting_an_image_rewrites_a_file(tmp_path: Path) -> None:
    """As many overlapping files as RocksDB would merge by itself."""
    runs = runs_of(tmp_path / "runs", rows=400)
    assert len(runs) == 15
    build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 5999}, merged=as_they_are(runs))
    files = {file.name: (file.stat().st_ino, file.read_bytes()) for file in (tmp_path / "image").glob("*.sst")}
    assert {Path(run.path).read_bytes() for run in runs} <= {data for _, data in files.values()}
    verify_image(tmp_path / "image", KIND, [CHANGELOG])
    with RocksDBStore(tmp_path / "image", KIND, settings=KEEP_FILES) as store:  # a base that is advanced
        store.put(b"key", b"12345678value")
        store.commit({CHANGELOG: 6000})
    after = {file.name: (file.stat().st_ino, file.read_bytes()) for file in (tmp_path / "image").glob("*.sst")}
    assert files.items() <= after.items()


@pytest.mark.parametrize("room", ["images", "runtime", "maintenance", "spark", "cli", "airflow"])
def test_jobs_open_databases_with_settings_that_keep_their_files(room: str) -> None:
    keeping = {"KEEP_FILES", "_WHEN_CLOSED"}
    for source in (Path(statecore.__file__).parent / room).rglob("*.py"):
        if source.name in ("task_directory.py", "followed_store.py", "global_databases.py"):  # stores at work
            continue
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "RocksDBStore":
                given = {getattr(one.value, "id", None) for one in node.keywords if one.arg == "settings"}
                assert given & keeping, f"{source}:{node.lineno}"
    assert not image._WHEN_CLOSED.automatic_compaction


def test_runs_that_share_no_keys_are_never_merged(tmp_path: Path) -> None:
    records: list[Record] = [(b"key-%04d" % number, b"x") for number in range(1000)]
    runs = runs_of(tmp_path / "runs", records, rows=100)
    assert len(runs) == 10
    assert sorted_runs(runs) == [slice(0, 10)]
    image = build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 1})
    assert image.rows == 1000
    assert len(list((tmp_path / "image").glob("*.sst"))) >= 10


def test_a_directory_has_the_files_that_kafka_streams_leaves(tmp_path: Path) -> None:
    build_image(tmp_path / "image", KIND, runs_of(tmp_path / "runs"), {CHANGELOG: 5999})
    names = {
        file.name.split("-")[0] if "-" in file.name else file.suffix or file.name
        for file in (tmp_path / "image").iterdir()
    }
    assert names == {"CURRENT", "IDENTITY", "LOCK", "MANIFEST", "OPTIONS", ".sst", ".log"}
    assert all(file.stat().st_size == 0 for file in (tmp_path / "image").glob("*.log"))
    assert stat.S_IMODE((tmp_path / "image").stat().st_mode) == 0o750
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "image").iterdir()} == {0o640}
    with RocksDBStore(tmp_path / "image", KIND, read_only=True, exactly_once=True) as store:
        assert store.status == 0
        assert store.committed_offset(CHANGELOG) == 5999
        assert store.position == {}


def test_no_runs_make_an_empty_store(tmp_path: Path) -> None:
    image = build_image(tmp_path / "image", KIND, [], {CHANGELOG: OFFSET_UNKNOWN})
    assert (image.rows, image.digest, image.offsets) == (0, EMPTY, {str(CHANGELOG): OFFSET_UNKNOWN})
    assert verify_image(tmp_path / "image", KIND, [CHANGELOG], identity=image.identity) == image


def test_runs_are_still_there_for_a_retry(tmp_path: Path) -> None:
    runs = runs_of(tmp_path / "runs", rows=3000)
    first = build_image(tmp_path / "first", KIND, runs, {CHANGELOG: 1})
    second = build_image(tmp_path / "second", KIND, runs, {CHANGELOG: 1})
    assert first.digest == second.digest


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.5, 0.9, 0.98, 1.0])
def test_a_bit_flipped_before_ingest_is_found(tmp_path: Path, share: float) -> None:
    (run,) = runs_of(tmp_path / "runs")
    flip(Path(run.path), int(share * (run.file_bytes - 1)))
    with pytest.raises(Corrupted):
        build_image(tmp_path / "image", KIND, [run], {CHANGELOG: 5999})


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.98, 1.0])
def test_a_bit_flipped_in_a_run_that_is_merged_is_found_wherever_it_is(tmp_path: Path, share: float) -> None:
    runs = runs_of(tmp_path / "runs", rows=500)
    flip(runs[0].path, int(share * (runs[0].file_bytes - 1)))
    with raises(Corrupted, "run-damaged", path=str(runs[0].path)):
        build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 5999})


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.5, 0.9, 0.98, 1.0])
@pytest.mark.parametrize("rows", [6000, 1000])
def test_a_bit_flipped_during_ingest_is_found(
    tmp_path: Path, share: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After whatever was hashed before, and before RocksDB has it."""
    runs = runs_of(tmp_path / "runs", rows=rows)
    link = os.link

    def damaging(source: Path, target: Path) -> None:
        link(source, target)
        if source == runs[-1].path:
            flip(target, int(share * (runs[-1].file_bytes - 1)))

    monkeypatch.setattr(os, "link", damaging)
    with pytest.raises(Corrupted):
        build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 5999})


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.7])
def test_a_bit_flipped_in_the_rows_of_an_image_is_found_by_verification(tmp_path: Path, share: float) -> None:
    (run,) = runs_of(tmp_path / "runs")
    build_image(tmp_path / "image", KIND, [run], {CHANGELOG: 5999})
    largest = max((tmp_path / "image").glob("*.sst"), key=lambda file: file.stat().st_size)
    flip(largest, int(share * (run.file_bytes - 1)))
    with pytest.raises(Corrupted):
        verify_image(tmp_path / "image", KIND, [CHANGELOG])


def test_a_bit_flipped_anywhere_in_the_footer_is_found_and_does_no_harm(tmp_path: Path) -> None:
    """The footer says where everything else lies and has no checksum of its own: RocksDB must survive reading it."""
    (run,) = runs_of(tmp_path / "runs", [(b"a", b"1"), (b"b", b"2")])
    whole = Path(run.path).read_bytes()
    for at in range(run.file_bytes - 53, run.file_bytes):
        Path(run.path).unlink(missing_ok=True)
        Path(run.path).write_bytes(whole)
        flip(Path(run.path), at)
        with pytest.raises(Corrupted):
            build_image(tmp_path / f"image-{at}", KIND, [run], {CHANGELOG: 1})


def hashed_long_ago(runs: list[Run]) -> list[Run]:
    """Runs whose files were hashed when they came, some time after they were written."""
    for run in runs:
        os.utime(run.path, ns=(10**18, 10**18))
    return [replace(run, state_when_hashed=FileState.of(run.path)) for run in runs]


def test_a_file_that_was_hashed_as_it_came_is_not_hashed_again(tmp_path: Path) -> None:
    """Seen by damage that its inode, size and time do not tell."""
    (run,) = hashed_long_ago(runs_of(tmp_path / "runs"))
    flip(run.path, run.file_bytes // 2)
    os.utime(run.path, ns=(10**18, 10**18))
    assert build_image(tmp_path / "known", KIND, [run], {CHANGELOG: 5999}).digest == run.digest
    with raises(Corrupted, "run-damaged", path=str(run.path)):
        build_image(tmp_path / "not-known", KIND, [replace(run, state_when_hashed=None)], {CHANGELOG: 5999})


@pytest.mark.parametrize("how", ["written to", "another file", "cut"])
def test_a_file_that_changed_since_it_was_hashed_is_hashed_again(tmp_path: Path, how: str) -> None:
    (run,) = hashed_long_ago(runs_of(tmp_path / "runs"))
    if how == "written to":
        flip(run.path, run.path.stat().st_size // 2)
    elif how == "another file":
        other = tmp_path / "other"
        other.write_bytes(run.path.read_bytes())
        flip(other, other.stat().st_size // 2)
        os.utime(other, ns=(10**18, 10**18))
        other.replace(run.path)
    else:
        os.truncate(run.path, run.path.stat().st_size - 1)
    with raises(Corrupted, "run-damaged", path=str(run.path)):
        build_image(tmp_path / "image", KIND, [run], {CHANGELOG: 5999})


def test_what_is_known_is_not_read_again(tmp_path: Path) -> None:
    """Runs that overlap are told by a read of them all; those that do not, by themselves, whatever was said."""
    overlapping = runs_of(tmp_path / "runs", rows=3000)
    known = StoreDigest(7, 8, "9" * 32)
    built = build_image(tmp_path / "image", KIND, overlapping, {CHANGELOG: 5999}, content=known)
    assert (built.rows, built.bytes, built.digest) == known
    alone = build_image(tmp_path / "alone", KIND, overlapping[:1], {CHANGELOG: 2999}, content=known)
    assert (alone.rows, alone.digest) == (overlapping[0].rows, overlapping[0].digest)


def test_a_truncated_or_missing_run_is_refused(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs")
    data = Path(run.path).read_bytes()
    Path(run.path).write_bytes(data[:-1])
    with pytest.raises(Corrupted, match="bytes instead of"):
        build_image(tmp_path / "image", KIND, [run], {CHANGELOG: 5999})
    Path(run.path).unlink()
    with pytest.raises(Corrupted, match="is missing"):
        build_image(tmp_path / "image", KIND, [run], {CHANGELOG: 5999})


def test_runs_in_another_order_are_another_store(tmp_path: Path) -> None:
    """The order of ingest decides, so a mix-up is refused, and where it cannot be detected the digest shows it."""
    runs = runs_of(tmp_path / "runs", rows=3000)
    right = build_image(tmp_path / "right", KIND, runs, {CHANGELOG: 1})
    with pytest.raises(Invalid, match="cannot follow"):
        build_image(tmp_path / "wrong", KIND, runs[::-1], {CHANGELOG: 1})
    assert not (tmp_path / "wrong").exists()
    mixed = [replace(run, start=0, end=0) for run in runs[::-1]]
    wrong = build_image(tmp_path / "wrong", KIND, mixed, {CHANGELOG: 1})
    assert right.digest != wrong.digest


def test_runs_of_another_kind_or_of_other_bytes_are_refused(tmp_path: Path) -> None:
    runs = runs_of(tmp_path / "runs")
    for wrong in (replace(runs[0], kind=StoreKind.KEY_VALUE), replace(runs[0], row_version=ROW_VERSION + 1)):
        with pytest.raises(Invalid, match="contains rows of a"):
            build_image(tmp_path / "image", KIND, [wrong], {CHANGELOG: 5999})
    assert not (tmp_path / "image").exists()


def test_an_existing_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "precious").write_text("x")
    with pytest.raises(Invalid, match="exists already"):
        build_image(tmp_path / "image", KIND, [], {CHANGELOG: 0})
    assert files_of(tmp_path / "image") == {"precious": b"x"}


def test_an_offset_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        build_image(tmp_path / "image", KIND, [], {CHANGELOG: -1})
    assert not (tmp_path / "image").exists()


def test_ranges_that_touch_are_not_disjoint(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path / "runs")
    left, right = replace(run, min_key="61", max_key="62"), replace(run, min_key="62", max_key="63")
    assert len(sorted_runs([right, left])) == 2
    assert len(sorted_runs([replace(right, min_key="6200"), left])) == 1


def test_nothing_is_written_down_beside_a_database_in_the_making(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not opened after its maker was killed, and what is handed to Kafka Streams has no record anyway."""
    (run,) = runs_of(tmp_path / "runs")
    seen: set[str] = set()
    replace_file = os.replace

    def looking(source: Path, target: Path) -> None:
        seen.add(Path(target).name)
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", looking)
    with RocksDBStore(tmp_path / "other", KIND, create=True) as store:
        store.commit({CHANGELOG: 1})
    assert seen == {RECORD_FILE}
    seen.clear()
    build_image(tmp_path / "image", KIND, [run], {CHANGELOG: 5999})
    assert seen == set()
