"""The digest of a store: equal for equal rows, however they were built.

Each row is hashed with two seeds, the key's hash being the seed of the value's; each of the two hashes is summed over
all rows, modulo 2^64::

    row    = XXH64(value, seed=XXH64(key, seed=s))       s = SEEDS[0], SEEDS[1]
    digest = 16 hex digits of the first sum, 16 hex digits of the second; an empty store has thirty-two zeros

Sums do not depend on order, and the digest of a union of disjoint stores is the sum of theirs. It guards against
defects and damage, not against deliberate collisions.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from statecore.images.kernels import kernel
from statecore.images.model import StoreDigest

SEEDS = (0x0000000000000000, 0x5851F42D4C957F2D)  # Seeds of the two sums
EMPTY = "0" * 32  # Digest of no rows
_MASK = (1 << 64) - 1


class Digest:
    """Accumulates columnar rows into a digest, a row count and a byte count."""

    def __init__(self) -> None:
        self.rows = 0
        self.deletes = 0
        self.bytes = 0
        self._sums = np.zeros(2, np.uint64)

    def add(
        self,
        key_offsets: npt.NDArray[np.int64],
        keys: npt.NDArray[np.uint8],
        value_offsets: npt.NDArray[np.int64],
        values: npt.NDArray[np.uint8],
        valid: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """Add rows from contiguous buffers; a zero in ``valid`` marks a delete, counted but not hashed."""
        count = len(key_offsets) - 1
        kernel.run(
            "add_rows",
            key_offsets=key_offsets,
            keys=keys,
            value_offsets=value_offsets,
            values=values,
            valid=valid,
            count=count,
            sums=self._sums,
            seed_a=SEEDS[0],
            seed_b=SEEDS[1],
        )
        present = count if valid is None else int(np.count_nonzero(valid))
        self.rows += present
        self.deletes += count - present
        key_bytes = int(key_offsets[-1] - key_offsets[0])
        if present < count and valid is not None:
            key_bytes = int(np.diff(key_offsets)[valid != 0].sum())
        self.bytes += key_bytes + int(value_offsets[-1] - value_offsets[0])

    @property
    def content(self) -> StoreDigest:
        """Content of the rows added so far."""
        return StoreDigest(self.rows, self.bytes, self.hexdigest())

    def hexdigest(self) -> str:
        """Digest of the rows added so far, 32 hex digits."""
        return f"{int(self._sums[0]):016x}{int(self._sums[1]):016x}"


def combined(*contents: StoreDigest) -> StoreDigest:
    """Digest of the union of stores without common keys."""
    sums = (sum(int(one.digest[at : at + 16], 16) for one in contents) for at in (0, 16))
    return StoreDigest(
        sum(one.rows for one in contents),
        sum(one.bytes for one in contents),
        "".join(f"{total & _MASK:016x}" for total in sums),
    )


def digest_rows(chunks: Iterable[tuple[list[bytes], list[bytes]]]) -> StoreDigest:
    """Digest of rows in lists of keys and values."""
    digest = Digest()
    for keys, values in chunks:
        digest.add(*_joined(keys), *_joined(values))
    return digest.content


def _joined(items: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, items), np.int64, len(items)), out=offsets[1:])
    return offsets, np.frombuffer(b"".join(items), np.uint8)
