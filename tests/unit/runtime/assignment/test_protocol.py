"""User data is read back as it was written, and nothing else is read; who does not fit is refused, the others go on."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given as forall
from hypothesis import settings as how
from hypothesis import strategies as st

from statecore.errors import Invalid
from statecore.runtime.assignment.model import AssignmentSettings, Copy, Role
from statecore.runtime.assignment.protocol import (
    KEEP,
    MOST_BYTES,
    Given,
    Subscription,
    decide,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    only_known,
)

TASKS = st.from_regex(r"(__[a-z]{1,5}__/)?[0-9]{1,3}_[0-9]{1,4}", fullmatch=True)
SUMS = st.integers(0, 2**64 - 1)
SUBSCRIPTIONS = st.builds(
    Subscription,
    spec=st.text(max_size=20),
    host=st.text(max_size=20),
    capacity=st.integers(1, 0xFFFF),
    round=st.integers(0, 2**32 - 1),
    process=SUMS,
    copies=st.dictionaries(TASKS, st.builds(Copy, SUMS, st.sampled_from(Role)), max_size=5),
)
SETTINGS = AssignmentSettings()
ENDS = {"0_0": 10, "0_1": 10}


@st.composite
def assignments(draw: st.DrawFn) -> Given:
    roles = draw(st.dictionaries(TASKS, st.sampled_from([Role.WARMUP, Role.STANDBY, Role.ACTIVE]), max_size=5))
    errors = draw(st.dictionaries(TASKS, st.text(max_size=20), max_size=3))
    elsewhere = draw(st.dictionaries(TASKS, SUMS, max_size=3))
    believed = {task: draw(SUMS) for task in roles}
    refusal, action = draw(st.text(max_size=20)), draw(st.text(max_size=20))
    return Given(roles, believed, draw(st.booleans()), errors, refusal, action, elsewhere, draw(SUMS))


def subscription(spec: str = "spec-1", host: str = "h", **copies: Copy) -> bytes:
    return encode_subscription(Subscription(spec, host, copies={name[1:]: copy for name, copy in copies.items()}))


def changed(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    return data[:6] + zlib.compress(change(zlib.decompress(data[6:])))


def of_version(version: int) -> bytes:
    return subscription()[:4] + struct.pack(">H", version) + b"whatever that version says"


def decided(data: bytes) -> Given:
    given = decode_assignment(data)
    assert given is not None
    return given


@how(deadline=None, max_examples=30)  # of each, every length is tried
@forall(SUBSCRIPTIONS)
def test_a_subscription_is_read_back_and_no_part_of_it_is(said: Subscription) -> None:
    data = encode_subscription(said)
    assert decode_subscription(data) == said
    for wrong in [*(data[:end] for end in range(len(data))), data + b"\0"]:
        with pytest.raises(Invalid):
            decode_subscription(wrong)


@how(deadline=None, max_examples=30)  # of each, every length is tried
@forall(assignments())
def test_an_assignment_is_read_back_and_no_part_of_it_is(given: Given) -> None:
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
        (b"", "no member of a fleet"),
        (b"\0\1range", "no member of a fleet"),
        (of_version(9), "speaks version 9"),
        (b"SCTS" + bytes(MOST_BYTES), "bytes"),
        (b"SCTS\0\2not deflated", "cannot be inflated"),
        (changed(subscription(), lambda body: bytes(MOST_BYTES + 1)), "more bytes"),
        (subscription() + b"more", "others than its own"),
        (changed(subscription(), lambda body: body[:-4] + struct.pack(">I", 2**32 - 1)), "4294967295 tasks"),
        (changed(subscription(_0_0=Copy(1)), lambda body: body.replace(b"0_0", b"../")), "which is none"),
        (changed(subscription(_0_0=Copy(1), _0_1=Copy(1)), lambda body: body.replace(b"0_1", b"0_0")), "twice"),
    ],
)
def test_what_is_no_subscription_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        decode_subscription(data)


def test_an_assignment_of_another_version_is_refused_and_keep_is_understood() -> None:
    with pytest.raises(Invalid, match="speaks version 1"):
        decode_assignment(b"SCTA\0\1anything")
    assert decode_assignment(KEEP) is None
    with pytest.raises(Invalid, match="nothing to do"):
        decode_assignment(encode_assignment(Given({"0_0": Role.ON_DISK})))


def test_thousands_of_tasks_shrink_several_times_so_that_a_fleet_fits_into_one_record_of_a_broker() -> None:
    copies = {f"{n % 4}_{n // 4}": Copy(7_000_000 + n * 7919 % 100_000, Role.STANDBY) for n in range(5_000)}
    data = encode_subscription(Subscription("s" * 64, "host", copies=copies))
    assert decode_subscription(data).copies == copies
    assert len(data) < 35_000


def test_too_much_is_not_encoded() -> None:
    many = {f"0_{number}": Copy() for number in range(100_001)}
    with pytest.raises(Invalid, match="100001 tasks"):
        encode_subscription(Subscription("s", "h", copies=many))
    with pytest.raises(Invalid, match="does not go into"):
        encode_subscription(Subscription("s" * 70_000, "h"))


def test_each_member_is_told_its_tasks_and_the_sums_for_which_it_has_them() -> None:
    sent = {"a": subscription(host="a", _0_0=Copy(7)), "b": subscription(host="b")}
    decision = decide(sent, "a", ENDS, SETTINGS)
    given = {member: decided(data) for member, data in decision.data.items()}
    assert given["a"] == Given({"0_0": Role.STANDBY}, {"0_0": 7})
    assert given["b"] == Given({"0_1": Role.STANDBY}, {"0_1": 0})


def test_a_member_hears_how_much_those_have_that_were_given_a_task_instead_of_it() -> None:
    """Not how much others have that were not: two of those could delete the best copy, each for the other's sake."""
    sent = {
        "a": subscription(host="a", _0_0=Copy(900), _0_1=Copy(5)),
        "b": subscription(host="b", _0_0=Copy(890), _0_1=Copy(1_000)),
        "c": subscription(host="c", _0_0=Copy(900, Role.STANDBY)),
    }
    decision = decide(sent, "a", {"0_0": 900}, AssignmentSettings(replicas=1, recovery_lag=10))
    given = {member: decided(data) for member, data in decision.data.items()}
    assert given["c"] == Given({"0_0": Role.STANDBY}, {"0_0": 900})
    assert given["a"].elsewhere == given["b"].elsewhere == {"0_0": 900}
    assert "0_1" in given["a"].errors


def test_of_several_that_were_given_a_task_a_member_hears_of_the_one_that_has_most() -> None:
    sent = {
        "a": subscription(host="a", _0_0=Copy(893)),
        "b": subscription(host="b", _0_0=Copy(895, Role.STANDBY)),
        "c": subscription(host="c", _0_0=Copy(899, Role.STANDBY)),
    }
    decision = decide(sent, "a", {"0_0": 900}, AssignmentSettings(replicas=2, recovery_lag=10))
    assert decided(decision.data["a"]).elsewhere == {"0_0": 899}


def test_members_that_do_not_fit_are_refused_and_the_others_have_all_tasks() -> None:
    sent = {
        "a": subscription(host="a"),
        "b": subscription(host="b"),
        "spec": subscription("spec-2"),
        "newer": of_version(3),
        "stranger": b"something else",
        "nothing": b"",
    }
    decision = decide(sent, "a", ENDS, SETTINGS)
    given = {member: decided(data) for member, data in decision.data.items()}
    assert given.keys() == sent.keys()
    assert given["a"].roles.keys() | given["b"].roles.keys() == ENDS.keys()
    assert not given["a"].refusal
    assert "digest spec-2, theirs spec-1" in given["spec"].refusal
    assert "same spec" in given["spec"].action
    assert "version 3" in given["newer"].refusal
    assert "no member of a fleet" in given["stranger"].refusal
    assert "no member of a fleet" in given["nothing"].refusal
    assert not any(given[member].roles for member in ("spec", "newer", "stranger", "nothing"))


def test_a_leader_that_does_not_fit_refuses_itself_and_lets_the_others_keep_what_they_have() -> None:
    sent = {"a": subscription("spec-2"), "b": subscription(), "c": subscription()}
    decision = decide(sent, "a", ENDS, SETTINGS)
    assert "digest spec-2" in decided(decision.data["a"]).refusal
    assert (decision.data["b"], decision.data["c"], decision.assignment) == (KEEP, KEEP, None)
    sent = {"a": subscription(), "b": of_version(3), "c": of_version(3)}
    decision = decide(sent, "a", ENDS, SETTINGS)
    assert "Most members of the group speak version 3" in decided(decision.data["a"]).refusal
    assert (decision.data["b"], decision.data["c"], decision.assignment) == (KEEP, KEEP, None)


def test_of_two_specs_that_as_many_have_the_leader_s_goes_on() -> None:
    sent = {"a": subscription("spec-1", "a"), "b": subscription("spec-2", "b")}
    for leader, other in (("a", "b"), ("b", "a")):
        decision = decide(sent, leader, ENDS, SETTINGS)
        assert decided(decision.data[leader]).roles.keys() == ENDS.keys()
        assert decided(decision.data[other]).refusal


def test_a_task_that_nobody_knows_is_an_error_for_who_has_it() -> None:
    sent = {"a": subscription(host="a", _9_9=Copy(7)), "b": subscription(host="b")}
    decision = decide(sent, "b", ENDS, SETTINGS)
    assert decided(decision.data["a"]).errors.keys() == {"9_9"}
    assert decided(decision.data["a"]).roles.keys() == {"0_0"}
    assert not decided(decision.data["b"]).errors


def test_a_task_that_is_assigned_and_not_known_is_left_out_with_an_error() -> None:
    given = Given({"0_0": Role.STANDBY, "5_0": Role.STANDBY}, {"0_0": 1, "5_0": 2})
    assert only_known(given, ENDS) == Given(
        {"0_0": Role.STANDBY}, {"0_0": 1}, errors={"5_0": "The group assigned task 5_0, which is not known here."}
    )
    assert only_known(given, {"0_0": 1, "5_0": 1}) is given
