"""Makes the golden hashes of RocksDB's Bloom filters: what its own ``util/xxph3.h`` says of keys of many lengths.

``python -m tests.golden.make_xxph3 DIRECTORY`` takes a directory with RocksDB's source, compiles that header with a C++
compiler (``c++``) and writes ``tests/golden/xxph3.txt``, a line for each key: its length and its hash, hex. The header
has been the same since RocksDB 6.6, because filters on disk depend on it.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from hashlib import shake_256
from pathlib import Path

HERE = Path(__file__).parent
HASHES = HERE / "xxph3.txt"
LENGTHS = (
    *range(260),
    *(
        edge + more
        for edge in (512, 1024, 2048, 4096, 65536, 1 << 20)
        for more in (-65, -64, -63, -1, 0, 1, 63, 64, 65)
    ),
    *range(300, 5000, 97),
    (20 << 20) + 17,
)
"""Every length below and just above where stripes begin, both sides of whole stripes and blocks, and some between."""

_SOURCE = """
#include "util/xxph3.h"
extern "C" unsigned long long key_hash(const void *key, size_t size) { return XXPH3_64bits(key, size); }
"""


def key(length: int) -> bytes:
    """The key of a length."""
    return shake_256(b"%d" % length).digest(length)


def main(rocksdb: Path) -> None:
    """Compile, hash, write."""
    with tempfile.TemporaryDirectory() as directory:
        source, library = Path(directory, "hash.cc"), Path(directory, "hash.so")
        source.write_text(_SOURCE)
        subprocess.run(["c++", "-O1", "-shared", "-fPIC", f"-I{rocksdb}", "-o", library, source], check=True)
        hashing = ctypes.CDLL(str(library)).key_hash
    hashing.restype, hashing.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    HASHES.write_text("".join(f"{length} {hashing(key(length), length):016x}\n" for length in LENGTHS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
