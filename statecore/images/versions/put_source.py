"""Kernels of ``RocksDBVersionedStore.put``: changes to the versions of one key. Imported only to compile.

The state of a key during replay is its latest value (words of ``State``), a list of ``Row`` from the newest segment to
the oldest, and for each of them a list of ``Node`` from the newest version to the oldest, all linked by index, so that
memory can grow. Values stay in the mapped files of the runs. A row whose ``valid_to`` equals its ``valid_from`` is
*degenerate*: a lone tombstone.

``put`` checks in several places whether a segment is still live, and whether a row overlaps a newer one. Neither check
is needed here. A record that is not older than stream time minus the retention is, with everything newer, in live
segments, and grace equals history retention; so expired rows are never accessed again and may stay until memory is
short. Overlaps come from writes that failed halfway, which do not occur here.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

from numba import njit

from statecore.images.versions.kernel import NODE, ROW, STATE
from statecore.kernels.memory import get, put

_ROW, _NODE = len(ROW) * 8, len(NODE) * 8
NONE = -1


@njit(error_model="numpy")
def _node(state, valid_from, address, length, older):
    """Add a version; returns its index."""
    free = get(state, STATE.nodes_free)
    if free != NONE:
        put(state, STATE.nodes_free, get(get(state, STATE.nodes) + free * _NODE, NODE.older))
        put(state, STATE.nodes_freed, get(state, STATE.nodes_freed) - 1)
    else:
        free = get(state, STATE.nodes_used)
        put(state, STATE.nodes_used, free + 1)
    node = get(state, STATE.nodes) + free * _NODE
    put(node, NODE.valid_from, valid_from)
    put(node, NODE.address, address)
    put(node, NODE.length, length)
    put(node, NODE.older, older)
    return free


@njit(error_model="numpy")
def _row_of(state, segment):
    """Address of the key's row in a segment, or 0."""
    index = get(state, STATE.first_row)
    while index != NONE:
        row = get(state, STATE.rows) + index * _ROW
        found = get(row, ROW.segment)
        if found == segment:
            return row
        if found < segment:
            break
        index = get(row, ROW.following)
    return 0


@njit(error_model="numpy")
def _new_row(state, segment, valid_from, valid_to, address, length):
    """``newSegmentValueWithRecord``, for a segment where the key has no row."""
    free = get(state, STATE.rows_free)
    rows = get(state, STATE.rows)
    if free != NONE:
        put(state, STATE.rows_free, get(rows + free * _ROW, ROW.following))
        put(state, STATE.rows_freed, get(state, STATE.rows_freed) - 1)
    else:
        free = get(state, STATE.rows_used)
        put(state, STATE.rows_used, free + 1)
    row = rows + free * _ROW
    node = _node(state, valid_from, address, length, NONE)
    put(row, ROW.segment, segment)
    put(row, ROW.valid_to, valid_to)
    put(row, ROW.valid_from, valid_from)
    put(row, ROW.head, node)
    put(row, ROW.tail, node)
    before, index = 0, get(state, STATE.first_row)
    while index != NONE and get(rows + index * _ROW, ROW.segment) > segment:
        before = rows + index * _ROW
        index = get(before, ROW.following)
    put(row, ROW.following, index)
    if before:
        put(before, ROW.following, free)
    else:
        put(state, STATE.first_row, free)


@njit(error_model="numpy")
def drop_expired(state, first_live):
    """Free the rows of expired segments, at the end of the list."""
    rows, nodes = get(state, STATE.rows), get(state, STATE.nodes)
    before, index = 0, get(state, STATE.first_row)
    while index != NONE and get(rows + index * _ROW, ROW.segment) >= first_live:
        before = rows + index * _ROW
        index = get(before, ROW.following)
    if before:
        put(before, ROW.following, NONE)
    else:
        put(state, STATE.first_row, NONE)
    while index != NONE:
        row = rows + index * _ROW
        node = get(row, ROW.head)
        while node != NONE:
            older = get(nodes + node * _NODE, NODE.older)
            put(nodes + node * _NODE, NODE.older, get(state, STATE.nodes_free))
            put(state, STATE.nodes_free, node)
            put(state, STATE.nodes_freed, get(state, STATE.nodes_freed) + 1)
            node = older
        following = get(row, ROW.following)
        put(row, ROW.following, get(state, STATE.rows_free))
        put(state, STATE.rows_free, index)
        put(state, STATE.rows_freed, get(state, STATE.rows_freed) + 1)
        index = following


@njit(error_model="numpy")
def _push(state, row, valid_from, address, length):
    put(row, ROW.head, _node(state, valid_from, address, length, get(row, ROW.head)))


@njit(error_model="numpy")
def _set_only(state, row, valid_from, address, length):
    """Make this the only version of a degenerate row."""
    node = get(state, STATE.nodes) + get(row, ROW.head) * _NODE
    put(node, NODE.valid_from, valid_from)
    put(node, NODE.address, address)
    put(node, NODE.length, length)
    put(row, ROW.valid_from, valid_from)


@njit(error_model="numpy")
def _insert_as_latest(state, row, valid_from, valid_to, address, length):
    """``SegmentValue.insertAsLatest``: a gap before the version becomes a tombstone."""
    end = get(row, ROW.valid_to)
    degenerate = end == get(row, ROW.valid_from)
    if end == valid_from:
        if degenerate:
            _set_only(state, row, valid_from, address, length)
        else:
            _push(state, row, valid_from, address, length)
    else:
        if not degenerate:  # a degenerate row already is that tombstone
            _push(state, row, end, 0, -1)
        _push(state, row, valid_from, address, length)
    put(row, ROW.valid_to, valid_to)


@njit(error_model="numpy")
def _insert_as_earliest(state, row, valid_from, address, length):
    """``SegmentValue.insertAsEarliest``."""
    if get(row, ROW.valid_to) == get(row, ROW.valid_from):
        _set_only(state, row, valid_from, address, length)
        return
    node = _node(state, valid_from, address, length, NONE)
    put(get(state, STATE.nodes) + get(row, ROW.tail) * _NODE, NODE.older, node)
    put(row, ROW.tail, node)
    put(row, ROW.valid_from, valid_from)


@njit(error_model="numpy")
def _put_to_segment(state, row, time, address, length):
    """``putToSegment``, where the row has a version that is valid at the time."""
    nodes = get(state, STATE.nodes)
    before, index = 0, get(row, ROW.head)
    while get(nodes + index * _NODE, NODE.valid_from) > time:
        before = nodes + index * _NODE
        index = get(before, NODE.older)
    node = nodes + index * _NODE
    valid_from = get(node, NODE.valid_from)
    segment = time // get(state, STATE.interval)
    if valid_from == time:
        put(node, NODE.address, address)
        put(node, NODE.length, length)
        return
    if segment != get(row, ROW.segment):
        # The version that was valid here now ends in an older segment and moves there.
        older = _row_of(state, segment)
        if older:
            _insert_as_latest(state, older, valid_from, time, get(node, NODE.address), get(node, NODE.length))
        else:
            _new_row(state, segment, valid_from, time, get(node, NODE.address), get(node, NODE.length))
        put(node, NODE.valid_from, time)
        put(node, NODE.address, address)
        put(node, NODE.length, length)
        if valid_from == get(row, ROW.valid_from):
            put(row, ROW.valid_from, time)
        return
    new = _node(state, time, address, length, index)
    if before:
        put(before, NODE.older, new)
    else:
        put(row, ROW.head, new)


@njit(error_model="numpy")
def _set_latest(state, time, address, length):
    put(state, STATE.latest_from, time if length >= 0 else NONE)
    put(state, STATE.latest_address, address)
    put(state, STATE.latest_length, length)


@njit(error_model="numpy")
def _put_to_latest(state, time, address, length):
    """``maybePutToLatestValueStore``, for a record newer than the latest value, which moves into a segment."""
    latest, segment = get(state, STATE.latest_from), time // get(state, STATE.interval)
    if time > latest:
        row = _row_of(state, segment)
        if row:
            _insert_as_latest(
                state, row, latest, time, get(state, STATE.latest_address), get(state, STATE.latest_length)
            )
        else:
            _new_row(state, segment, latest, time, get(state, STATE.latest_address), get(state, STATE.latest_length))
    _set_latest(state, time, address, length)


@njit(error_model="numpy")
def _finish_put(state, time, address, length, found):
    """``finishPut``, where no row has a version valid at the time; ``found`` is the start of the next one, or -1."""
    if found == NONE and length >= 0:
        _set_latest(state, time, address, length)
        return
    segment = (time if found == NONE else found) // get(state, STATE.interval)
    row = _row_of(state, segment)
    if found == NONE:
        if not row:
            _new_row(state, segment, time, time, 0, -1)
        elif get(row, ROW.valid_to) != time:  # otherwise its end already is this tombstone
            _insert_as_latest(state, row, get(row, ROW.valid_to), time, 0, -1)
    elif not row:
        _new_row(state, segment, time, found, address, length)
    elif get(row, ROW.valid_to) <= time:
        _insert_as_latest(state, row, time, found, address, length)
    else:
        _insert_as_earliest(state, row, time, address, length)


@njit(error_model="numpy")
def put_record(state, time, address, length):
    """``doPut`` of a record that is not expired: adds at most three versions and one row."""
    found = get(state, STATE.latest_from)
    if found != NONE and time >= found:
        _put_to_latest(state, time, address, length)
        return
    segment, index = time // get(state, STATE.interval), get(state, STATE.first_row)
    while index != NONE:
        row = get(state, STATE.rows) + index * _ROW
        if get(row, ROW.segment) < segment or get(row, ROW.valid_to) <= time:
            break
        if get(row, ROW.valid_from) <= time:
            _put_to_segment(state, row, time, address, length)
            return
        found = get(row, ROW.valid_from)
        index = get(row, ROW.following)
    _finish_put(state, time, address, length, found)
