"""Columnar SST writer, from contiguous buffers: RocksDB's block-based table, format version 5.

Nothing becomes a Python object, and the file's SHA-256 is taken while its bytes are in the cache. Format version 5 is
what RocksDB 6.6 and newer read. All integers little-endian; "varint" has seven bits a byte, lowest first::

    file        data block*  filter block  index block  properties block  metaindex block  footer

    each block  contents  00 (no compression)  uint32 checksum: low half of XXH64(contents o 00)
    entries     varint shared  varint rest  varint value length  key[shared:]  value      (shared: with the key before)
    contents    entry*  uint32 restart offset*  uint32 number of restarts                 (restart: shared is 0)

    data        key = user key o 01 (value) or 00 (delete) o seven zeros (sequence number 0); about 4 KiB a block;
                a restart at least every 16 entries
    index       for each data block, all of them restarts:
                00  varint length  user key  varint block offset  varint block size         (no value length)
                the key is no less than the block's last one and less than the next block's first: the shorter of the
                last one and of as much of the next one as is greater
    filter      64-byte lines, six bits of one line per key  ff 00 06 00 00
    properties  name -> varint, fixed integer or text, names ascending; with those of RocksDB's SstFileWriter, which
                ingest asks for (rocksdb.external_sst_file.version and .global_seqno)
    metaindex   "fullfilter.rocksdb.BuiltinBloomFilter" -> handle, "rocksdb.properties" -> handle
    handle      varint offset  varint size (without the five bytes of trailer)

    footer      03 (XXH64)  metaindex handle  index handle  zeros up to 41 bytes
                uint32 5 (format version)  uint64 88e241b785f4cff7

The same rows in the same chunks give the same bytes: the session identity, from which RocksDB makes cache keys and file
ids, is taken from the hash of everything before it, where RocksDB's own writer uses a random one. The chunks of runs
depend on the rows alone, never on how much memory there was.
"""

from __future__ import annotations

import statecore.extras.pipeline

import os
import struct
from hashlib import sha256
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from statecore.errors import Invalid
from statecore.filesystem import FILE_MODE
from statecore.images.kernels import kernel
from statecore.images.kernels.kernel import Written
from statecore.stores.rocksdb.options import BLOCK_BYTES, BLOOM_BITS_PER_KEY
from statecore.system_errors import write_error

CHUNK_ROWS, CHUNK_BYTES = 4096, 1 << 20
"""Most rows of a chunk, and most bytes of its keys and of its values; a larger row is a chunk of its own.

Small enough that a chunk, its rows and their Python objects stay in the cache between the steps. Blocks of the file
end with a chunk, so other limits give other files.
"""

FORMAT_VERSION = 5  # SST format version of the files
MAGIC = 0x88E241B785F4CFF7
XXH64 = 3  # Checksum type
_PROBES = 6
_LINE_BYTES = 64
_FOOTER_HANDLES_BYTES = 40
_NO_FAMILY = 0x7FFFFFFF
# Measured on ext4, Linux 6.18: writes of half a megabyte take up to three times as much system time.
_WRITE_BYTES = 128 << 10
_BASE36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ROOM_PER_ROW = 40  # 8 of type and sequence number, 15 of lengths, a restart, a share of the block's trailer
_INDEX_ROOM_PER_ROW = 32  # 1 of what is shared, 5 of the key's length, 15 of the handle
_MOST_INDEX_BYTES = 0xFFFFFFFF  # positions in a block have 32 bits


class ColumnarSstWriter:
    """An SST file being written; keys must be ascending and distinct. A context manager that closes the file."""

    def __init__(self, path: Path, *, most_index_bytes: int = _MOST_INDEX_BYTES) -> None:
        self._most_index_bytes = most_index_bytes
        self._path = path
        self._hash = sha256()
        self._at = 0
        self._index: list[bytes] = []
        self._index_starts: list[npt.NDArray[np.uint32]] = []
        self._index_bytes = 0
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._last_key = np.empty(0, np.uint8)
        self._last_block = self._last_block_bytes = 0
        self._entries = self._deletes = self._key_bytes = self._value_bytes = 0
        self._out = np.empty(0, np.uint8)
        try:
            path.unlink(missing_ok=True)
            # With its final mode: as a blob of a repository it may be the very same file.
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            self._file = os.fdopen(made, "wb", buffering=0)
        except OSError as error:
            raise write_error(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def add(
        self,
        key_offsets: npt.NDArray[np.int64],
        keys: npt.NDArray[np.uint8],
        value_offsets: npt.NDArray[np.int64],
        values: npt.NDArray[np.uint8],
        valid: npt.NDArray[np.uint8] | None,
    ) -> None:
        """Append rows; a zero in ``valid`` marks a delete. Rows of different calls share no block."""
        rows = len(key_offsets) - 1
        key_bytes = int(key_offsets[-1] - key_offsets[0])
        value_bytes = int(value_offsets[-1] - value_offsets[0])
        room = key_bytes + value_bytes + _ROOM_PER_ROW * rows + 64
        if len(self._out) < room:
            self._out = np.empty(room, np.uint8)
        index = np.empty(len(self._last_key) + key_bytes + _INDEX_ROOM_PER_ROW * (rows + 1), np.uint8)
        starts, hashes = np.empty(rows + 1, np.uint32), np.empty(rows, np.uint64)
        written = np.array(Written(), np.int64)
        kernel.run(
            "data_blocks",
            key_offsets=key_offsets,
            keys=keys,
            value_offsets=value_offsets,
            values=values,
            valid=valid,
            count=rows,
            file_offset=self._at,
            block_bytes=BLOCK_BYTES,
            last_key=self._last_key,
            last_key_bytes=len(self._last_key),
            last_block=self._last_block,
            last_block_bytes=self._last_block_bytes,
            out=self._out,
            index=index,
            index_starts=starts,
            restarts=np.empty(rows, np.uint32),
            hashes=hashes,
            secret=kernel.SECRET,
            written=written,
        )
        made = Written(*written.tolist())
        self._write(self._out[: made.bytes].data)
        self._index_blocks(index[: made.index_bytes].tobytes(), starts[: made.index_entries])
        self._last_key = keys[key_offsets[-2] : key_offsets[-1]].copy()
        self._last_block, self._last_block_bytes = made.last_block, made.last_block_bytes
        self._hashes.append(hashes)
        self._entries += rows
        self._deletes += 0 if valid is None else int(rows - np.count_nonzero(valid))
        self._key_bytes += key_bytes + 8 * rows
        self._value_bytes += value_bytes

    def finish(self) -> str:
        """Finish the file and return its SHA-256, hex. At least one row must have been added."""
        handle = _varint(self._last_block, self._last_block_bytes)
        last = self._last_key.tobytes()
        self._index_blocks(b"\0" + _varint(len(last)) + last + handle, np.zeros(1, np.uint32))
        data_size = self._at
        filter_handle = self._block(self._filter())
        starts = np.concatenate(self._index_starts).astype("<u4")
        index = b"".join(self._index) + starts.tobytes() + struct.pack("<I", len(starts))
        index_handle = self._block(index)
        properties_handle = self._block(self._properties(data_size, filter_handle[1], index_handle[1]))
        metaindex_handle = self._block(
            _block(
                {
                    b"fullfilter.rocksdb.BuiltinBloomFilter": _varint(*filter_handle),
                    b"rocksdb.properties": _varint(*properties_handle),
                }
            )
        )
        handles = _varint(*metaindex_handle, *index_handle).ljust(_FOOTER_HANDLES_BYTES, b"\0")
        self._write(bytes([XXH64]) + handles + struct.pack("<IQ", FORMAT_VERSION, MAGIC))
        return self._hash.hexdigest()

    def _index_blocks(self, entries: bytes, starts: npt.NDArray[np.uint32]) -> None:
        if self._index_bytes + len(entries) > self._most_index_bytes:
            raise Invalid(
                f"The keys of {self._path} exceed one file: its index has more than 4 GiB.",
                code="sst-index-too-large",
                action="Give the job more workers: they read a partition in more ranges of offsets, for smaller runs.",
                path=str(self._path),
            )
        self._index.append(entries)
        self._index_starts.append(starts + np.uint32(self._index_bytes))
        self._index_bytes += len(entries)

    def _write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        view = memoryview(data)
        try:
            while len(view):
                view = view[self._file.write(view[:_WRITE_BYTES]) :]
        except OSError as error:
            raise write_error(self._path, error) from error
        self._at += len(data)

    def _block(self, contents: bytes) -> tuple[int, int]:
        """Append a block with its trailer; returns its handle."""
        whole = np.frombuffer(contents + b"\0", np.uint8)
        checksum = kernel.run("xxh64", address=whole, length=len(whole), seed=0) & 0xFFFFFFFF
        handle = (self._at, len(contents))
        self._write(whole.tobytes() + struct.pack("<I", checksum))
        return handle

    def _filter(self) -> bytes:
        lines = max(1, -(-self._entries * BLOOM_BITS_PER_KEY // (8 * _LINE_BYTES)))
        bits = np.zeros(lines * _LINE_BYTES, np.uint8)
        for hashes in self._hashes:
            kernel.run("fill_filter", hashes=hashes, count=len(hashes), bits=bits, lines=lines, probes=_PROBES)
        return bits.tobytes() + bytes([0xFF, 0, _PROBES, 0, 0])

    def _properties(self, data_size: int, filter_size: int, index_size: int) -> bytes:
        numbers = {
            "column.family.id": _NO_FAMILY,
            "creation.time": 0,
            "data.size": data_size,
            "deleted.keys": self._deletes,
            "filter.size": filter_size,
            "fixed.key.length": 0,
            "format.version": FORMAT_VERSION,
            "index.key.is.user.key": 1,
            "index.size": index_size,
            "index.value.is.delta.encoded": 1,
            "key.largest.seqno": 0,
            "merge.operands": 0,
            "num.data.blocks": sum(map(len, self._index_starts)),
            "num.entries": self._entries,
            "num.filter_entries": self._entries,
            "num.range-deletions": 0,
            "oldest.key.time": 0,
            "original.file.number": 1,
            "raw.key.size": self._key_bytes,
            "raw.value.size": self._value_bytes,
            "tail.start.offset": data_size,
        }
        texts = {
            "block.based.table.index.type": b"\0\0\0\0",
            "block.based.table.prefix.filtering": b"0",
            "block.based.table.whole.key.filtering": b"1",
            "comparator": b"leveldb.BytewiseComparator",
            "compression": b"NoCompression",
            "creating.db.identity": b"SST Writer",
            "creating.session.identity": self._session(),
            "external_sst_file.global_seqno": bytes(8),
            "external_sst_file.version": struct.pack("<I", 2),
            "filter.policy": b"bloomfilter",
            "merge.operator": b"nullptr",
            "prefix.extractor.name": b"nullptr",
            "property.collectors": b"[]",
        }
        values = {name: _varint(number) for name, number in numbers.items()} | texts
        return _block({b"rocksdb." + name.encode(): values[name] for name in sorted(values)})

    def _session(self) -> bytes:
        """Session identity: twenty base-36 digits, eight and twelve, the latter below 2^62."""
        digest = self._hash.digest()
        upper = int.from_bytes(digest[:8], "big") % 36**8
        lower = int.from_bytes(digest[8:16], "big") >> 2
        return (_base36(upper, 8) + _base36(lower, 12)).encode()


def _block(entries: dict[bytes, bytes]) -> bytes:
    """Contents of a small block; every entry is a restart."""
    parts, starts, at = [], [], 0
    for key, value in entries.items():
        entry = _varint(0, len(key), len(value)) + key + value
        parts.append(entry)
        starts.append(at)
        at += len(entry)
    return b"".join(parts) + struct.pack(f"<{len(starts)}I", *starts) + struct.pack("<I", len(starts))


def _varint(*numbers: int) -> bytes:
    encoded = bytearray()
    for number in numbers:
        rest = number
        while rest >= 128:
            encoded.append(rest & 127 | 128)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)


def _base36(number: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 36)
        text = _BASE36[digit] + text
    return text
