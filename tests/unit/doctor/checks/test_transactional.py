"""Transactional stores (KIP-892), declared or shown by the directory."""

from __future__ import annotations

import pytest

from statecore.formats.releases import RELEASES
from statecore.spec.reader import read_spec
from tests.unit.doctor.diagnosing import (
    ALOS,
    EOS,
    ERROR,
    LOSS,
    NOTE,
    SPEC,
    WARNING,
    codes,
    declares,
    diagnose,
    plain,
    window,
)
from tests.unit.doctor.stored import write_database


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_transactional_stores_are_wiped_for_no_missing_offset(tmp_path, guarantee):
    plain(tmp_path, offset=None, status=None)
    assert codes(tmp_path, spec=declares(guarantee)) == {"offset-missing": LOSS}
    assert codes(tmp_path, spec=declares(guarantee), release=RELEASES["4.3"])["offset-missing"] is (
        ERROR if guarantee is EOS else LOSS
    )
    (one,) = diagnose(tmp_path, spec=declares(guarantee)).findings
    assert "wipes" not in one.what


@pytest.mark.parametrize(("guarantee", "severity"), [(ALOS, WARNING), (EOS, ERROR)])
def test_rows_of_an_older_release_without_an_offset_stay_in_transactional_stores(tmp_path, guarantee, severity):
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": [(b"a", b"1")]})
    assert codes(tmp_path, spec=declares(guarantee)) == {"older-release": severity}


def test_what_the_directory_shows_counts_where_there_is_no_spec(tmp_path):
    plain(tmp_path, status=None)
    plain(tmp_path, store="t", offset=None, status=None)
    window(tmp_path, {}, task="0_1")
    assert codes(tmp_path, guarantee=EOS) == {"offset-missing": LOSS, "segment-missing": NOTE}
    assert diagnose(tmp_path, guarantee=EOS).transactional
    assert codes(tmp_path, guarantee=EOS, release=RELEASES["4.3"]) == {
        "offset-missing": ERROR,
        "segment-missing": ERROR,
    }


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_transactional_stores_that_the_spec_does_not_declare(tmp_path, guarantee):
    plain(tmp_path, status=None)
    spec = read_spec(SPEC.format(guarantee=guarantee, stores="s: {kind: key-value}"))
    (one,) = diagnose(tmp_path, spec=spec).findings
    assert (one.code, one.severity, one.repair) == ("transactional-undeclared", WARNING, None)
    assert one.evidence == {"stores": ["0_0 s"]}
    assert codes(tmp_path, spec=spec, tasks=["0_0"]) == {"transactional-undeclared": WARNING}
    assert codes(tmp_path, spec=spec, release=RELEASES["4.3"]) == {}, "it knows no such setting"
    assert codes(tmp_path, spec=declares(guarantee)) == {}


def test_one_store_without_a_status_among_others_is_named_and_not_the_application(tmp_path):
    plain(tmp_path, status=None)
    plain(tmp_path, store="t")
    plain(tmp_path, store="t", task="0_1")
    spec = read_spec(SPEC.format(guarantee=EOS, stores="s: {kind: key-value}, t: {kind: key-value}"))
    found = {one.code: one for one in diagnose(tmp_path, spec=spec, tasks=["0_0", "0_1"]).findings}
    one = found["transactional-undeclared"]
    assert (one.task, one.store, one.severity, str(one.partition)) == ("0_0", "s", WARNING, "app-s-changelog-0")
    assert "2 other stores have a status" in one.what


def test_stores_with_a_status_are_not_taken_for_transactional(tmp_path):
    plain(tmp_path)
    assert codes(tmp_path, spec=read_spec(SPEC.format(guarantee=EOS, stores="s: {kind: key-value}"))) == {}


def test_a_status_of_before_still_counts_under_exactly_once(tmp_path):
    plain(tmp_path, status=1)
    assert codes(tmp_path, spec=declares(EOS)) == {"store-not-closed": ERROR}
    assert codes(tmp_path, spec=declares(ALOS)) == {"store-not-closed": NOTE}


def test_a_transactional_store_that_is_not_logged_has_a_position_alone(tmp_path):
    plain(tmp_path, status=None)
    position = [(b"position", bytes(6))]
    write_database(tmp_path / "app/0_0/rocksdb/u", {"default": [(b"a", b"1")], "offsets": position})
    assert codes(tmp_path, guarantee=EOS) == {"store-unlogged": NOTE}
    plain(tmp_path, store="t", offset=None, status=None)
    found = {one.store: one.severity for one in diagnose(tmp_path, guarantee=EOS).findings}
    assert found["u"] is NOTE  # its task is not wiped for t
