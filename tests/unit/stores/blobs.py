"""A store whose values lie in blob files, as ``options.setEnableBlobFiles(true)`` of a RocksDBConfigSetter makes it."""

from __future__ import annotations

from pathlib import Path

from rocksdict import Options, Rdict

from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import STATUS_KEY, encode_int64, offset_key
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.directory import CONFIG_FILE

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-s-changelog", 0)


def row(number: int) -> tuple[bytes, bytes]:
    """Key and value; every tenth value is so small that it stays in the SST file."""
    return b"k%06d" % number, bytes(8) + b"v%06d-" % number * (1 if number % 10 == 0 else 40)


def write(path: Path, rows: range, *, deleted: range = range(0), changelog: TopicPartition = CHANGELOG) -> Path:
    """Write rows into a store, which is made where it is missing; closed cleanly, its offset that of the last row."""
    data = _options()
    data.set_enable_blob_files(True)
    data.set_min_blob_size(64)
    families = {"default": data, KIND.data_column_family: data, OFFSETS_COLUMN_FAMILY: _options()}
    database = Rdict(str(path), data, column_families=families)
    store, offsets = (database.get_column_family(name) for name in (KIND.data_column_family, OFFSETS_COLUMN_FAMILY))
    for number in rows:
        store[row(number)[0]] = row(number)[1]
    for number in deleted:
        del store[row(number)[0]]
    store.flush()
    offsets[offset_key(changelog)] = encode_int64(rows.stop - 1)
    offsets[STATUS_KEY] = encode_int64(0)
    offsets.flush()
    for handle in (store, offsets, database):
        handle.close()
    (path / CONFIG_FILE).unlink(missing_ok=True)
    (path / "LOG").unlink(missing_ok=True)
    return path


def blob_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.blob"))


def _options() -> Options:
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    made.create_missing_column_families(True)
    made.set_atomic_flush(True)
    made.set_disable_auto_compactions(True)
    return made
