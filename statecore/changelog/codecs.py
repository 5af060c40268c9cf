"""Decompression of record batches into one reused buffer.

The records of a batch are compressed as a whole, with one codec (:class:`statecore.changelog.model.Codec`). librdkafka
and Go clients write raw Snappy; Java clients write the framing of ``SnappyOutputStream`` (xerial)::

    0x82 "SNAPPY" 0x00 | i32 version | i32 oldest compatible version | { i32 length | raw snappy block }*

An lz4 frame as Kafka's clients write it (independent blocks, no checksums) is parsed here, because the library's frame
decoder initialises itself for each batch, which costs three times as much as decompressing the blocks. The library
decodes any other frame::

    04 22 4D 18 | flags 60 | block size (bits 4-6: 4..7 is 64 KiB .. 4 MiB) | header checksum |
    { u32 little endian: length, top bit set: stored | block }* | u32 0
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections.abc import Callable

import cramjam
import numpy as np
import numpy.typing as npt

from statecore.changelog.model import Codec

LARGEST_BATCH = 1 << 30
"""Largest decompressed bytes of a batch: Arrow binary columns have 32-bit offsets, and memory must be bounded."""

_LZ4_PLAIN = b"\x04\x22\x4d\x18\x60"
_LITTLE = struct.Struct("<I")
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
(_XERIAL_AGAIN,) = struct.unpack(">i", _XERIAL[:4])


class DecompressionFailed(Exception):
    """The bytes are not valid for the codec, or exceed `LARGEST_BATCH`; the caller adds the position."""


class Scratch:
    """A growing buffer of decompressed batches, one after the other.

    Growing moves the bytes, so callers keep positions and take addresses only after the last batch.
    """

    def __init__(self, size: int = 32 << 20) -> None:
        self.used = 0
        self._array = np.empty(size, np.uint8)
        self._view = self._array.data

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The buffer; replaced when it grows."""
        return self._array

    def clear(self) -> None:
        """Reset to the front."""
        self.used = 0

    def append(self, codec: int, data: memoryview) -> int:
        """Decompress one batch at the end of the buffer, and return the position after it (``used``)."""
        if codec == Codec.SNAPPY:
            return self._append_snappy(data)
        if codec == Codec.LZ4 and data[:5] == _LZ4_PLAIN:
            return self._append_lz4(data)
        try:
            decompress = _INTO[codec]
        except KeyError:
            raise DecompressionFailed(f"compression codec {codec} does not exist") from None
        self._reserve(4 * len(data) + 1024)
        while True:
            room = len(self._array) - self.used
            try:
                self.used += decompress(data, self._view[self.used :])
                return self.used
            except cramjam.DecompressionError as error:
                # Too little room and broken bytes raise the same type; more room tells them apart. The CRC has been
                # verified, so broken bytes are too rare for the extra attempts to matter.
                if room >= LARGEST_BATCH:
                    raise DecompressionFailed(str(error)) from error
                self._reserve(min(2 * room, LARGEST_BATCH))

    def _append_lz4(self, data: memoryview) -> int:
        if len(data) < 7:
            raise DecompressionFailed("lz4 frame is cut off")
        largest = 1 << (2 * (data[5] >> 4 & 7) + 8)
        at, end = 7, len(data)
        while at + 4 <= end:
            (length,) = _LITTLE.unpack_from(data, at)
            at += 4
            if length == 0:
                return self.used
            size = length & 0x7FFFFFFF
            if size > end - at or size > LARGEST_BATCH:
                raise DecompressionFailed("lz4 frame announces more than there is")
            block = data[at : at + size]
            self._reserve(max(largest, size))
            if length != size:
                self._view[self.used : self.used + size] = block
                self.used += size
            else:
                try:
                    self.used += cramjam.lz4.decompress_block_into(block, self._view[self.used :], output_len=largest)
                except cramjam.DecompressionError as error:
                    raise DecompressionFailed(str(error)) from error
            at += size
        raise DecompressionFailed("lz4 frame is cut off")

    def _append_snappy(self, data: memoryview) -> int:
        if bytes(data[:8]) != _XERIAL:
            return self._append_snappy_block(data)
        at = _XERIAL_HEADER
        while at < len(data):
            if at + 4 > len(data):
                raise DecompressionFailed("snappy framing is cut off")
            (length,) = struct.unpack_from(">i", data, at)
            if length == _XERIAL_AGAIN:  # streams may be concatenated, each with its header
                at += _XERIAL_HEADER
                continue
            at += 4
            if length < 0 or length > len(data) - at:
                raise DecompressionFailed("snappy framing announces more than there is")
            self._append_snappy_block(data[at : at + length])
            at += length
        return self.used

    def _append_snappy_block(self, data: memoryview) -> int:
        try:
            size = cramjam.snappy.decompress_raw_len(data)
            if size > LARGEST_BATCH:
                raise DecompressionFailed(f"snappy announces {size} bytes")
            self._reserve(size)
            self.used += cramjam.snappy.decompress_raw_into(data, self._view[self.used :])
        except cramjam.DecompressionError as error:
            raise DecompressionFailed(str(error)) from error
        return self.used

    def _reserve(self, room: int) -> None:
        if len(self._array) - self.used >= room:
            return
        grown = np.empty(max(2 * len(self._array), self.used + room), np.uint8)
        grown[: self.used] = self._array[: self.used]
        self._array = grown
        self._view = grown.data


_INTO: dict[int, Callable[[memoryview, memoryview], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
