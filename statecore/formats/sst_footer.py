"""The end of an SST file (``table/format.h``), which says in which format the rest of it is::

    format version 1 to 6, the last 53 bytes:
        checksum type (1), handles of metaindex and index or what took their place (40), version (4), magic (8)
    format version 0: no version, and another magic

Numbers are little-endian. The footer is written last, so a file without one was never finished, or was cut.
"""

from __future__ import annotations

import struct

FOOTER_BYTES = 12
"""As many bytes from the end of the file are needed."""

_FOOTER = struct.Struct("<IQ")
_MAGIC = 0x88E241B785F4CFF7
_MAGIC_OF_VERSION_0 = 0xDB4775248B80FB57


def format_version(tail: bytes) -> int | None:
    """The format version of an SST file, by its last bytes; ``None`` where they are no footer."""
    if len(tail) < FOOTER_BYTES:
        return None
    version, magic = _FOOTER.unpack(tail[-FOOTER_BYTES:])
    if magic == _MAGIC_OF_VERSION_0:
        return 0
    return int(version) if magic == _MAGIC else None
