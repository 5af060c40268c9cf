"""Each member is told what it needs; who does not fit is refused, and the others go on."""

from __future__ import annotations

import struct

from statecore.standby.assignment.leader import decide
from statecore.standby.assignment.model import AssignmentSettings, Copy, Role
from statecore.standby.assignment.protocol import (
    KEEP,
    MemberAssignment,
    Subscription,
    decode_assignment,
    encode_subscription,
)

SETTINGS = AssignmentSettings()
ENDS = {"0_0": 10, "0_1": 10}


def subscription(spec: str = "spec-1", host: str = "h", **copies: Copy) -> bytes:
    return encode_subscription(Subscription(spec, host, copies={name[1:]: copy for name, copy in copies.items()}))


def of_version(version: int) -> bytes:
    return subscription()[:4] + struct.pack(">H", version) + b"whatever that version says"


def decided(data: bytes) -> MemberAssignment:
    given = decode_assignment(data)
    assert given is not None
    return given


def test_each_member_gets_its_tasks_and_their_offset_sums() -> None:
    sent = {"a": subscription(host="a", _0_0=Copy(7)), "b": subscription(host="b")}
    decision = decide(sent, "a", ENDS, SETTINGS)
    given = {member: decided(data) for member, data in decision.data.items()}
    assert given["a"] == MemberAssignment({"0_0": Role.STANDBY}, {"0_0": 7})
    assert given["b"] == MemberAssignment({"0_1": Role.STANDBY}, {"0_1": 0})


def test_a_member_hears_how_much_those_have_that_were_given_a_task_instead_of_it() -> None:
    """Not how much others have that were not: two of those could delete the best copy, each for the other's sake."""
    sent = {
        "a": subscription(host="a", _0_0=Copy(900), _0_1=Copy(5)),
        "b": subscription(host="b", _0_0=Copy(890), _0_1=Copy(1_000)),
        "c": subscription(host="c", _0_0=Copy(900, Role.STANDBY)),
    }
    decision = decide(sent, "a", {"0_0": 900}, AssignmentSettings(replicas=1, recovery_lag=10))
    given = {member: decided(data) for member, data in decision.data.items()}
    assert given["c"] == MemberAssignment({"0_0": Role.STANDBY}, {"0_0": 900})
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
    assert "no standby process" in given["stranger"].refusal
    assert "no standby process" in given["nothing"].refusal
    assert not any(given[member].roles for member in ("spec", "newer", "stranger", "nothing"))


def test_a_leader_that_does_not_fit_refuses_itself_and_lets_the_others_keep_what_they_have() -> None:
    sent = {"a": subscription("spec-2"), "b": subscription(), "c": subscription()}
    decision = decide(sent, "a", ENDS, SETTINGS)
    assert "digest spec-2" in decided(decision.data["a"]).refusal
    assert (decision.data["b"], decision.data["c"], decision.assignment) == (KEEP, KEEP, None)
    sent = {"a": subscription(), "b": of_version(3), "c": of_version(3)}
    decision = decide(sent, "a", ENDS, SETTINGS)
    assert "version 3" in decided(decision.data["a"]).refusal
    assert (decision.data["b"], decision.data["c"], decision.assignment) == (KEEP, KEEP, None)


def test_of_two_equally_common_specs_that_of_the_leader_is_used() -> None:
    sent = {"a": subscription("spec-1", "a"), "b": subscription("spec-2", "b")}
    for leader, other in (("a", "b"), ("b", "a")):
        decision = decide(sent, leader, ENDS, SETTINGS)
        assert decided(decision.data[leader]).roles.keys() == ENDS.keys()
        assert decided(decision.data[other]).refusal


def test_an_unknown_task_is_an_error_of_its_member() -> None:
    sent = {"a": subscription(host="a", _9_9=Copy(7)), "b": subscription(host="b")}
    decision = decide(sent, "b", ENDS, SETTINGS)
    assert decided(decision.data["a"]).errors.keys() == {"9_9"}
    assert decided(decision.data["a"]).roles.keys() == {"0_0"}
    assert not decided(decision.data["b"]).errors


def test_an_assigned_copy_that_is_not_opened_yet_has_no_offset_sum() -> None:
    """It may turn out to be one that cannot be opened; who deletes another for its sake may delete the only one."""
    for role, heard in ((Role.ON_DISK, {}), (Role.STANDBY, {"0_0": 900})):
        sent = {"a": subscription(host="a", _0_0=Copy(900, role)), "b": subscription(host="b", _0_0=Copy(890))}
        decision = decide(sent, "a", {"0_0": 900}, AssignmentSettings(replicas=1, recovery_lag=10))
        assert decided(decision.data["a"]).roles == {"0_0": Role.STANDBY}
        assert decided(decision.data["b"]).elsewhere == heard
