"""Binary format of the group's user data. Numbers are big-endian; strings are UTF-8.

::

    subscription   magic "SCTS"  version u16                     prefix of every version; the rest is deflated (zlib)
                   spec s        host s
                   round u32                                     changes to trigger a rebalance
                   process u64                                   random id of the process
                   tasks u32 × { task s   role u8   sum u64 }

    assignment     magic "SCTA"  version u16                     the rest is deflated
                   refusal s     action s                        why this member is refused, and what to do; else empty
                   probing u8
                   process u64                                   of the subscription that it answers
                   tasks u32 × { task s   role u8   assumed_sum u64 }
                   errors u32 × { task s   why s }
                   elsewhere u32 × { task s   sum u64 }          of the member's tasks that were not assigned to it

    keep           magic "SCTA"  version 0                       no decision: keep the current tasks; in every version

    s              length u16, bytes

``spec`` is a digest of the member's application spec. ``assumed_sum`` is the offset sum on which the assignment of the
task is based: a broker returns the old assignment to a static member that restarts, and if its disk was emptied, the
member detects that its sum is smaller, or that the assignment answers an earlier ``process`` and it has nothing.
``elsewhere`` is the best sum of the task's owners, not counting warm-ups: it tells a member whether its own copy is
still needed.

Decoding is strict: other versions, lengths beyond the end, trailing bytes, unknown roles and duplicate tasks are
refused.

A broker stores the subscriptions and assignments of all members in one record of limited size (``message.max.bytes`` of
``__consumer_offsets``, 1 MB). Deflating shrinks names and sums of thousands of tasks several times.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from statecore.errors import Invalid
from statecore.formats.task_id import GLOBAL_TASK, TaskId
from statecore.standby.assignment.model import Copy, Role

VERSION = 2
MOST_BYTES = 4 << 20  # Maximum size of user data before it is deflated
MOST_TASKS = 100_000  # Maximum length of a list in user data
_SUBSCRIPTION, _ASSIGNMENT = b"SCTS", b"SCTA"
_HEADER = struct.Struct(">4sH")
_LONGEST = 0xFFFF
KEEP = _HEADER.pack(_ASSIGNMENT, 0)


@dataclass(frozen=True)
class Subscription:
    """What a member publishes."""

    spec: str  # digest of its application spec
    host: str  # see Member
    round: int = 0  # changes to trigger a rebalance; the broker ignores a join with unchanged bytes
    process: int = 0  # random id of the process
    copies: Mapping[str, Copy] = field(default_factory=dict)  # its copies by task


@dataclass(frozen=True)
class MemberAssignment:
    """Assignment of one member."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    assumed_sums: Mapping[str, int] = field(default_factory=dict)  # offset sums on which the assignment is based
    probing: bool = False  # whether a probing rebalance has to follow
    errors: Mapping[str, str] = field(default_factory=dict)  # tasks that it must not touch, with the reason
    refusal: str = ""  # why it cannot take part; empty when it can
    action: str = ""  # what to do about the refusal
    # best sum at the owners of its tasks that were not assigned to it, not counting warm-ups
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    process: int = 0  # process id of the subscription that it answers


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription as user data."""
    parts = [
        _string(subscription.spec),
        _string(subscription.host),
        struct.pack(">IQ", subscription.round & 0xFFFFFFFF, subscription.process),
        struct.pack(">I", len(subscription.copies)),
    ]
    for task, copy in sorted(subscription.copies.items()):
        parts.append(_string(task) + struct.pack(">BQ", copy.role, copy.sum))
    return _deflated(_SUBSCRIPTION, parts, len(subscription.copies))


def decode_subscription(data: bytes) -> Subscription:
    reader = _Reader(data, _SUBSCRIPTION, "subscription")
    spec, host = reader.string(), reader.string()
    number, process = reader.unpack(">IQ")
    copies = {task: Copy(held, role) for task, role, held in reader.tasks()}
    reader.end()
    return Subscription(spec, host, number, process, copies)


def encode_assignment(given: MemberAssignment) -> bytes:
    """Encode an assignment as user data."""
    parts = [
        _string(given.refusal),
        _string(given.action),
        struct.pack(">BQI", given.probing, given.process, len(given.roles)),
    ]
    for task, role in sorted(given.roles.items()):
        parts.append(_string(task) + struct.pack(">BQ", role, given.assumed_sums.get(task, 0)))
    parts.append(struct.pack(">I", len(given.errors)))
    for task, why in sorted(given.errors.items()):
        parts.append(_string(task) + _string(why))
    parts.append(struct.pack(">I", len(given.elsewhere)))
    for task, held in sorted(given.elsewhere.items()):
        parts.append(_string(task) + struct.pack(">Q", held))
    return _deflated(_ASSIGNMENT, parts, max(len(given.roles), len(given.errors), len(given.elsewhere)))


def decode_assignment(data: bytes) -> MemberAssignment | None:
    """Decode an assignment; ``None`` if the member has to keep its tasks."""
    if data == KEEP:
        return None
    reader = _Reader(data, _ASSIGNMENT, "assignment")
    refusal, action = reader.string(), reader.string()
    probing, process = reader.unpack(">BQ")
    if probing > 1:
        raise reader.wrong(f"{probing} where 0 or 1 is expected")
    rows = list(reader.tasks())
    errors: dict[str, str] = {}
    for _ in range(reader.count()):
        task, why = reader.string(), reader.string()
        if task in errors:
            raise reader.wrong(f"task {task!r} twice")
        errors[task] = why
    elsewhere: dict[str, int] = {}
    for _ in range(reader.count()):
        task = reader.string()
        if task in elsewhere:
            raise reader.wrong(f"task {task!r} twice")
        (elsewhere[task],) = reader.unpack(">Q")
    reader.end()
    roles = {task: role for task, role, _ in rows}
    if Role.ON_DISK in roles.values():
        raise reader.wrong("a task with nothing to do")
    assumed_sums = {task: held for task, _, held in rows}
    return MemberAssignment(roles, assumed_sums, bool(probing), errors, refusal, action, elsewhere, process)


def only_known(given: MemberAssignment, tasks: Sequence[str] | Mapping[str, int]) -> MemberAssignment:
    """An assignment without tasks unknown to this member; those are added to its errors."""
    unknown = sorted(given.roles.keys() - set(tasks))
    if not unknown:
        return given
    return replace(
        given,
        roles={task: role for task, role in given.roles.items() if task not in unknown},
        assumed_sums={task: held for task, held in given.assumed_sums.items() if task not in unknown},
        errors={
            **given.errors,
            **{task: f"The group assigned task {task}, which is not known here." for task in unknown},
        },
    )


def is_readable(assignment: bytes) -> bool:
    """Whether an assignment is a decision of this protocol version; it may still be damaged."""
    return assignment != KEEP and not (
        len(assignment) >= _HEADER.size
        and assignment.startswith(_ASSIGNMENT)
        and _HEADER.unpack_from(assignment)[1] != VERSION
    )


def version_of(data: bytes) -> int | None:
    """Protocol version of a subscription; ``None`` if it is not one of a standby group."""
    if len(data) < _HEADER.size or not data.startswith(_SUBSCRIPTION):
        return None
    return int(_HEADER.unpack_from(data)[1])


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _LONGEST:
        raise Invalid(
            f"A name of {len(data)} bytes is too long for a group's user data: {text[:40]!r}.",
            code="name-too-long",
            action="Use shorter names.",
            size=len(data),
        )
    return struct.pack(">H", len(data)) + data


def _deflated(magic: bytes, parts: Sequence[bytes], tasks: int) -> bytes:
    data = b"".join(parts)
    if len(data) > MOST_BYTES or tasks > MOST_TASKS:
        raise Invalid(
            f"{tasks} tasks in {len(data)} bytes are too many for a group's user data.",
            code="group-too-large",
            action="Split the processes into several groups, each with some of the tasks.",
            size=len(data),
            tasks=tasks,
        )
    return _HEADER.pack(magic, VERSION) + zlib.compress(data, 6)


class _Reader:
    """Strict decoder of user data."""

    def __init__(self, data: bytes, magic: bytes, what: str) -> None:
        self._what, self._data, self._at = what, b"", 0
        if len(data) > MOST_BYTES:
            raise self.wrong(f"{len(data)} bytes")
        if not data.startswith(magic):
            raise Invalid(
                f"A member of the group is no standby process: its {what} has other user data.",
                code="group-of-another-application",
                action="Choose a group id that nothing else uses.",
            )
        if len(data) < _HEADER.size:
            raise self.wrong("an end before its time")
        _, version = _HEADER.unpack_from(data)
        if version != VERSION:
            raise Invalid(
                f"The {what} of a member has version {version} of the group's protocol; this member uses {VERSION}.",
                code="group-protocol-version-mismatch",
                action="Install the same release of statecore on all members.",
                expected=VERSION,
                found=version,
            )
        self._data = self._inflated(data[_HEADER.size :])

    def _inflated(self, data: bytes) -> bytes:
        inflating = zlib.decompressobj()
        try:
            found = inflating.decompress(data, MOST_BYTES + 1)  # one more: otherwise it may stop before its end marker
        except zlib.error as error:
            raise self.wrong(f"bytes that cannot be inflated ({error})") from error
        if len(found) > MOST_BYTES:
            raise self.wrong(f"more than {MOST_BYTES} bytes")
        if not inflating.eof:
            raise self.wrong("an end before its time")
        if inflating.unused_data:
            raise self.wrong(f"{len(inflating.unused_data)} trailing bytes")
        return found

    def unpack(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if self._at + size > len(self._data):
            raise self.wrong("an end before its time")
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += size
        return found

    def string(self) -> str:
        (size,) = self.unpack(">H")
        if self._at + size > len(self._data):
            raise self.wrong("an end before its time")
        data = self._data[self._at : self._at + size]
        self._at += size
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.wrong("text that is not UTF-8") from error

    def count(self) -> int:
        (count,) = self.unpack(">I")
        if count > MOST_TASKS:
            raise self.wrong(f"{count} tasks")
        return count

    def tasks(self) -> list[tuple[str, Role, int]]:
        rows: dict[str, tuple[str, Role, int]] = {}
        for _ in range(self.count()):
            task = self.string()
            role, number = self.unpack(">BQ")
            if TaskId.match(task) in (None, GLOBAL_TASK) or task in rows:
                raise self.wrong(f"task {task!r}, which is invalid or a duplicate")
            if role not in tuple(Role):
                raise self.wrong(f"role {role}")
            rows[task] = (task, Role(role), number)
        return list(rows.values())

    def end(self) -> None:
        if self._at != len(self._data):
            raise self.wrong(f"{len(self._data) - self._at} trailing bytes")

    def wrong(self, what: str) -> Invalid:
        return Invalid(
            f"The {self._what} of a member of the group is damaged: it has {what}.",
            code="group-message-damaged",
            action="Restart that member; if it happens again, install the same release of statecore on all members.",
        )
