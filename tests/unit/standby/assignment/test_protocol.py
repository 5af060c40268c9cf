"""User data is read back as it was written, and nothing else is read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given as forall
from hypothesis import settings as how
from hypothesis import strategies as st

from statecore.errors import Invalid
from statecore.standby.assignment.model import Copy, Role
from statecore.standby.assignment.protocol import (
    KEEP,
    MOST_BYTES,
    MemberAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    only_known,
)
from tests.harness.raising import raises

TASKS = st.from_regex(r"(0|[1-9][0-9]{0,2})_(0|[1-9][0-9]{0,3})", fullmatch=True)
SUMS = st.integers(0, 2**64 - 1)
SUBSCRIPTIONS = st.builds(
    Subscription,
    spec=st.text(max_size=20),
    host=st.text(max_size=20),
    round=st.integers(0, 2**32 - 1),
    process=SUMS,
    copies=st.dictionaries(TASKS, st.builds(Copy, SUMS, st.sampled_from(Role)), max_size=5),
)
ENDS = {"0_0": 10, "0_1": 10}


@st.composite
def assignments(draw: st.DrawFn) -> MemberAssignment:
    roles = draw(st.dictionaries(TASKS, st.sampled_from([Role.WARMUP, Role.STANDBY]), max_size=5))
    errors = draw(st.dictionaries(TASKS, st.text(max_size=20), max_size=3))
    elsewhere = draw(st.dictionaries(TASKS, SUMS, max_size=3))
    assumed_sums = {task: draw(SUMS) for task in roles}
    refusal, action = draw(st.text(max_size=20)), draw(st.text(max_size=20))
    return MemberAssignment(roles, assumed_sums, draw(st.booleans()), errors, refusal, action, elsewhere, draw(SUMS))


def subscription(spec: str = "spec-1", host: str = "h", **copies: Copy) -> bytes:
    return encode_subscription(Subscription(spec, host, copies={name[1:]: copy for name, copy in copies.items()}))


def changed(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    return data[:6] + zlib.compress(change(zlib.decompress(data[6:])))


def of_version(version: int) -> bytes:
    return subscription()[:4] + struct.pack(">H", version) + b"whatever that version says"


@how(deadline=None, max_examples=30)  # of each, every length is tried
@forall(SUBSCRIPTIONS)
def test_a_subscription_is_decoded_and_a_truncated_one_refused(said: Subscription) -> None:
    data = encode_subscription(said)
    assert decode_subscription(data) == said
    for wrong in [*(data[:end] for end in range(len(data))), data + b"\0"]:
        with pytest.raises(Invalid):
            decode_subscription(wrong)


@how(deadline=None, max_examples=30)  # of each, every length is tried
@forall(assignments())
def test_an_assignment_is_decoded_and_a_truncated_one_refused(given: MemberAssignment) -> None:
    data = encode_assignment(given)
    assert decode_assignment(data) == given
    for wrong in [*(data[:end] for end in range(len(data))), data + b"\0"]:
        with pytest.raises(Invalid):
            decode_assignment(wrong)


@how(deadline=None)
@forall(SUBSCRIPTIONS, st.data())
def test_a_byte_that_was_changed_is_refused_or_read_as_what_it_says(said: Subscription, data: st.DataObject) -> None:
    whole = bytearray(encode_subscription(said))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = decode_subscription(bytes(whole))
    except Invalid:
        return
    assert decode_subscription(encode_subscription(read)) == read


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no standby process"),
        (b"\0\1range", "no standby process"),
        (of_version(9), "version 9 of the group"),
        (b"SCTS" + bytes(MOST_BYTES), "bytes"),
        (b"SCTS\0\2not deflated", "cannot be inflated"),
        (changed(subscription(), lambda body: bytes(MOST_BYTES + 1)), "more than"),
        (subscription() + b"more", "4 trailing bytes"),
        (subscription()[:-1], "an end before its time"),
        (changed(subscription(), lambda body: body[:-4] + struct.pack(">I", 2**32 - 1)), "4294967295 tasks"),
        (changed(subscription(_0_0=Copy(1)), lambda body: body.replace(b"0_0", b"../")), "invalid or a duplicate"),
        (changed(subscription(_0_0=Copy(1), _0_1=Copy(1)), lambda body: body.replace(b"0_1", b"0_0")), "duplicate"),
    ],
)
def test_what_is_no_subscription_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        decode_subscription(data)


def test_an_assignment_of_another_version_is_refused_and_keep_is_understood() -> None:
    with pytest.raises(Invalid, match="version 1 of the group"):
        decode_assignment(b"SCTA\0\1anything")
    assert decode_assignment(KEEP) is None
    with pytest.raises(Invalid, match="nothing to do"):
        decode_assignment(encode_assignment(MemberAssignment({"0_0": Role.ON_DISK})))


def test_thousands_of_tasks_shrink_several_times_so_that_a_fleet_fits_into_one_record_of_a_broker() -> None:
    copies = {f"{n % 4}_{n // 4}": Copy(7_000_000 + n * 7919 % 100_000, Role.STANDBY) for n in range(5_000)}
    data = encode_subscription(Subscription("s" * 64, "host", copies=copies))
    assert decode_subscription(data).copies == copies
    assert len(data) < 35_000


def test_too_much_is_not_encoded() -> None:
    many = {f"0_{number}": Copy() for number in range(100_001)}
    with pytest.raises(Invalid, match="100001 tasks"):
        encode_subscription(Subscription("s", "h", copies=many))
    with pytest.raises(Invalid, match="is too long"):
        encode_subscription(Subscription("s" * 70_000, "h"))


@pytest.mark.parametrize("field", ["roles", "errors", "elsewhere"])
def test_no_list_is_encoded_that_is_longer_than_what_is_read(field: str) -> None:
    said = {"roles": Role.STANDBY, "errors": "", "elsewhere": 0}[field]
    many = {f"0_{number}": said for number in range(100_001)}
    with pytest.raises(Invalid, match="100001 tasks"):
        encode_assignment(MemberAssignment(**{field: many}))  # type: ignore[arg-type]
    del many["0_0"]
    assert getattr(decode_assignment(encode_assignment(MemberAssignment(**{field: many}))), field) == many  # type: ignore[arg-type]


def test_as_many_bytes_are_read_as_are_encoded_and_no_more() -> None:
    def with_bytes(count: int) -> MemberAssignment:
        """Its other parts, and a name in each entry, are known; the rest is a reason's."""
        errors = {f"0_{number:05}": "x" * 65_000 for number in range(64)}
        errors["0_99999"] = ""
        left = count - len(zlib.decompress(encode_assignment(MemberAssignment(errors=errors))[6:]))
        return MemberAssignment(errors={**errors, "0_99999": "x" * left})

    largest = with_bytes(MOST_BYTES)
    assert decode_assignment(encode_assignment(largest)) == largest
    with raises(Invalid, "group-too-large", size=MOST_BYTES + 1):
        encode_assignment(with_bytes(MOST_BYTES + 1))


def test_a_task_that_is_assigned_and_not_known_is_left_out_with_an_error() -> None:
    given = MemberAssignment({"0_0": Role.STANDBY, "5_0": Role.STANDBY}, {"0_0": 1, "5_0": 2})
    known = only_known(given, ENDS)
    assert (known.roles, known.assumed_sums, list(known.errors)) == ({"0_0": Role.STANDBY}, {"0_0": 1}, ["5_0"])
    assert only_known(given, {"0_0": 1, "5_0": 1}) is given
