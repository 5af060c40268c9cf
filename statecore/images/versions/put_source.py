"""What ``RocksDBVersionedStore.put`` does to the versions of one key. Imported only to compile.

What a key holds while it is replayed, all of it by index, so that memory can grow under it::

    latest    validFrom, address and length of the value; validFrom -1: none
    rows      6 x int64   segment id, validTo of the newest version, validFrom of the oldest, first and last node,
                          next row; a list from the newest segment to the oldest
    nodes     4 x int64   validFrom, address of the value, its length (-1: tombstone), next node; a list from the
                          newest version to the oldest

Values stay where they are, in the mapped files of the runs. A row whose ``validTo`` equals its oldest ``validFrom`` is
*degenerate*: a lone tombstone.

``put`` asks in several places whether a segment is still live, and whether a row overlaps a newer one. Neither needs
asking here. A record that is not older than stream time less the retention lies, with everything newer, in live
segments, and grace equals history retention; so expired rows are never looked at again and may stay until memory is
short. Overlaps come from writes that failed half-way, of which there are none.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

from numba import njit

from statecore.images.versions.kernel import NODE_WORDS, ROW_WORDS, WORD
from statecore.kernels.memory import get, put

_ROW, _NODE = ROW_WORDS * 8, NODE_WORDS * 8
NONE = -1

_LATEST_FROM = WORD["latest_from"]
_LATEST_ADDRESS = WORD["latest_address"]
_LATEST_LENGTH = WORD["latest_length"]
_ROWS = WORD["rows"]
_ROWS_USED = WORD["rows_used"]
_ROWS_FREE = WORD["rows_free"]
_ROWS_FREED = WORD["rows_freed"]
_NODES = WORD["nodes"]
_NODES_USED = WORD["nodes_used"]
_NODES_FREE = WORD["nodes_free"]
_NODES_FREED = WORD["nodes_freed"]
_FIRST_ROW = WORD["first_row"]
_INTERVAL = WORD["interval"]

# Words of a row and of a node.
SEGMENT, NEXT, MIN, HEAD, TAIL, FOLLOWING = 0, 1, 2, 3, 4, 5
FROM, ADDRESS, LENGTH, OLDER = 0, 1, 2, 3


@njit(error_model="numpy")
def _node(st, valid_from, address, length, older):
    """A new version; its index."""
    free = get(st, _NODES_FREE)
    if free != NONE:
        put(st, _NODES_FREE, get(get(st, _NODES) + free * _NODE, OLDER))
        put(st, _NODES_FREED, get(st, _NODES_FREED) - 1)
    else:
        free = get(st, _NODES_USED)
        put(st, _NODES_USED, free + 1)
    node = get(st, _NODES) + free * _NODE
    put(node, FROM, valid_from)
    put(node, ADDRESS, address)
    put(node, LENGTH, length)
    put(node, OLDER, older)
    return free


@njit(error_model="numpy")
def _row_of(st, segment):
    """The address of the key's row in a segment, or 0."""
    index = get(st, _FIRST_ROW)
    while index != NONE:
        row = get(st, _ROWS) + index * _ROW
        found = get(row, SEGMENT)
        if found == segment:
            return row
        if found < segment:
            break
        index = get(row, FOLLOWING)
    return 0


@njit(error_model="numpy")
def _new_row(st, segment, valid_from, valid_to, address, length):
    """``newSegmentValueWithRecord``, put into a segment where the key has no row."""
    free = get(st, _ROWS_FREE)
    rows = get(st, _ROWS)
    if free != NONE:
        put(st, _ROWS_FREE, get(rows + free * _ROW, FOLLOWING))
        put(st, _ROWS_FREED, get(st, _ROWS_FREED) - 1)
    else:
        free = get(st, _ROWS_USED)
        put(st, _ROWS_USED, free + 1)
    row = rows + free * _ROW
    node = _node(st, valid_from, address, length, NONE)
    put(row, SEGMENT, segment)
    put(row, NEXT, valid_to)
    put(row, MIN, valid_from)
    put(row, HEAD, node)
    put(row, TAIL, node)
    before, index = 0, get(st, _FIRST_ROW)
    while index != NONE and get(rows + index * _ROW, SEGMENT) > segment:
        before = rows + index * _ROW
        index = get(before, FOLLOWING)
    put(row, FOLLOWING, index)
    if before:
        put(before, FOLLOWING, free)
    else:
        put(st, _FIRST_ROW, free)


@njit(error_model="numpy")
def drop_expired(st, first_live):
    """Free the rows of expired segments: the end of the list."""
    rows, nodes = get(st, _ROWS), get(st, _NODES)
    before, index = 0, get(st, _FIRST_ROW)
    while index != NONE and get(rows + index * _ROW, SEGMENT) >= first_live:
        before = rows + index * _ROW
        index = get(before, FOLLOWING)
    if before:
        put(before, FOLLOWING, NONE)
    else:
        put(st, _FIRST_ROW, NONE)
    while index != NONE:
        row = rows + index * _ROW
        node = get(row, HEAD)
        while node != NONE:
            older = get(nodes + node * _NODE, OLDER)
            put(nodes + node * _NODE, OLDER, get(st, _NODES_FREE))
            put(st, _NODES_FREE, node)
            put(st, _NODES_FREED, get(st, _NODES_FREED) + 1)
            node = older
        following = get(row, FOLLOWING)
        put(row, FOLLOWING, get(st, _ROWS_FREE))
        put(st, _ROWS_FREE, index)
        put(st, _ROWS_FREED, get(st, _ROWS_FREED) + 1)
        index = following


@njit(error_model="numpy")
def _push(st, row, valid_from, address, length):
    put(row, HEAD, _node(st, valid_from, address, length, get(row, HEAD)))


@njit(error_model="numpy")
def _set_only(st, row, valid_from, address, length):
    """Make this the only version of a degenerate row."""
    node = get(st, _NODES) + get(row, HEAD) * _NODE
    put(node, FROM, valid_from)
    put(node, ADDRESS, address)
    put(node, LENGTH, length)
    put(row, MIN, valid_from)


@njit(error_model="numpy")
def _insert_as_latest(st, row, valid_from, valid_to, address, length):
    """``SegmentValue.insertAsLatest``: a gap before the version is a tombstone."""
    end = get(row, NEXT)
    degenerate = end == get(row, MIN)
    if end == valid_from:
        if degenerate:
            _set_only(st, row, valid_from, address, length)
        else:
            _push(st, row, valid_from, address, length)
    else:
        if not degenerate:  # a degenerate row is that tombstone
            _push(st, row, end, 0, -1)
        _push(st, row, valid_from, address, length)
    put(row, NEXT, valid_to)


@njit(error_model="numpy")
def _insert_as_earliest(st, row, valid_from, address, length):
    """``SegmentValue.insertAsEarliest``."""
    if get(row, NEXT) == get(row, MIN):
        _set_only(st, row, valid_from, address, length)
        return
    node = _node(st, valid_from, address, length, NONE)
    put(get(st, _NODES) + get(row, TAIL) * _NODE, OLDER, node)
    put(row, TAIL, node)
    put(row, MIN, valid_from)


@njit(error_model="numpy")
def _put_to_segment(st, row, time, address, length):
    """``putToSegment``: the row has a version that is valid at the time."""
    nodes = get(st, _NODES)
    before, index = 0, get(row, HEAD)
    while get(nodes + index * _NODE, FROM) > time:
        before = nodes + index * _NODE
        index = get(before, OLDER)
    node = nodes + index * _NODE
    valid_from = get(node, FROM)
    segment = time // get(st, _INTERVAL)
    if valid_from == time:
        put(node, ADDRESS, address)
        put(node, LENGTH, length)
        return
    if segment != get(row, SEGMENT):
        # The version that was valid here ends now, in an older segment: it moves there.
        older = _row_of(st, segment)
        if older:
            _insert_as_latest(st, older, valid_from, time, get(node, ADDRESS), get(node, LENGTH))
        else:
            _new_row(st, segment, valid_from, time, get(node, ADDRESS), get(node, LENGTH))
        put(node, FROM, time)
        put(node, ADDRESS, address)
        put(node, LENGTH, length)
        if valid_from == get(row, MIN):
            put(row, MIN, time)
        return
    new = _node(st, time, address, length, index)
    if before:
        put(before, OLDER, new)
    else:
        put(row, HEAD, new)


@njit(error_model="numpy")
def _set_latest(st, time, address, length):
    put(st, _LATEST_FROM, time if length >= 0 else NONE)
    put(st, _LATEST_ADDRESS, address)
    put(st, _LATEST_LENGTH, length)


@njit(error_model="numpy")
def _put_to_latest(st, time, address, length):
    """``maybePutToLatestValueStore``, the record being newer than the latest value: that one moves into a segment."""
    latest, segment = get(st, _LATEST_FROM), time // get(st, _INTERVAL)
    if time > latest:
        row = _row_of(st, segment)
        if row:
            _insert_as_latest(st, row, latest, time, get(st, _LATEST_ADDRESS), get(st, _LATEST_LENGTH))
        else:
            _new_row(st, segment, latest, time, get(st, _LATEST_ADDRESS), get(st, _LATEST_LENGTH))
    _set_latest(st, time, address, length)


@njit(error_model="numpy")
def _finish_put(st, time, address, length, found):
    """``finishPut``: no row has a version that is valid at the time; ``found`` is where the next one begins, or -1."""
    if found == NONE and length >= 0:
        _set_latest(st, time, address, length)
        return
    segment = (time if found == NONE else found) // get(st, _INTERVAL)
    row = _row_of(st, segment)
    if found == NONE:
        if not row:
            _new_row(st, segment, time, time, 0, -1)
        elif get(row, NEXT) != time:  # else its end is this tombstone
            _insert_as_latest(st, row, get(row, NEXT), time, 0, -1)
    elif not row:
        _new_row(st, segment, time, found, address, length)
    elif get(row, NEXT) <= time:
        _insert_as_latest(st, row, time, found, address, length)
    else:
        _insert_as_earliest(st, row, time, address, length)


@njit(error_model="numpy")
def put_record(st, time, address, length):
    """``doPut`` of a record that is not expired: at most three new versions and one new row."""
    found = get(st, _LATEST_FROM)
    if found != NONE and time >= found:
        _put_to_latest(st, time, address, length)
        return
    segment, index = time // get(st, _INTERVAL), get(st, _FIRST_ROW)
    while index != NONE:
        row = get(st, _ROWS) + index * _ROW
        if get(row, SEGMENT) < segment or get(row, NEXT) <= time:
            break
        if get(row, MIN) <= time:
            _put_to_segment(st, row, time, address, length)
            return
        found = get(row, MIN)
        index = get(row, FOLLOWING)
    _finish_put(st, time, address, length, found)
