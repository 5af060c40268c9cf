"""What the doctor finds in whole directories of real applications: as they were left, and after each kind of damage."""

from __future__ import annotations

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.formats.releases import CURRENT, RELEASES
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from tests.golden.directories import golden_directories, unpacked
from tests.golden.directories import names as golden_names
from tests.harness.case_selection import one_of, three_of
from tests.harness.damage_cases import DAMAGES

DAY_MS = 86_400_000
OFFLINE = sorted(name for name, damage in DAMAGES.items() if "brokers" not in damage.needs)


def diagnose(application, **how):
    return diagnose_directory(StateDirectory(application.parent, application.name), **how)


def release_of(case):
    return case[0].split("-")[0]


def codes(findings):
    return {one.code for one in findings if one.severity is not Severity.NOTE}


@pytest.mark.parametrize("name", three_of(golden_directories(), by=release_of))
def test_every_directory_is_found_to_be_what_was_done_to_it(tmp_path, name):
    golden = golden_directories()[name]
    application = unpacked(name, tmp_path)
    found = diagnose(application, spec=parse_spec(golden.spec), scan=True).findings
    assert set(golden.findings) <= {one.code for one in found}
    assert codes(found) <= {*golden.findings, *golden.tolerated}
    if golden.release == CURRENT.name:  # without a spec nothing else is said, and nothing less
        alone = diagnose(application, guarantee=ProcessingGuarantee(golden.guarantee)).findings
        assert codes(alone) == codes(found)


@pytest.mark.parametrize("name", one_of(golden_names(moment="clean"), by=release_of))
def test_a_clean_directory_has_no_findings_for_its_own_release(tmp_path, name):
    golden = golden_directories()[name]
    found = diagnose(unpacked(name, tmp_path), spec=parse_spec(golden.spec), release=RELEASES[golden.release])
    assert codes(found.findings) <= set(golden.tolerated)


@pytest.mark.parametrize("name", one_of(OFFLINE, by=lambda case: case[0].split("-")[0]))
def test_every_damage_is_found_where_it_is_and_nothing_else(tmp_path, name):
    damage = DAMAGES[name]
    golden = golden_directories()[damage.directory]
    application = unpacked(damage.directory, tmp_path)
    damage.inflict(application)
    before = fingerprint(application)
    found = diagnose(
        application,
        spec=parse_spec(golden.spec) if "spec" in damage.needs else None,
        tasks=[damage.task] if damage.task and "spec" not in damage.needs else [],  # the others are as they were
        guarantee=ProcessingGuarantee(golden.guarantee),
        scan="scan" in damage.needs,
        cleanup_max_age_ms=DAY_MS if "cleanup" in damage.needs else None,
    ).findings
    assert fingerprint(application) == before
    said = [(one.task, one.code, one.severity.value, one.what) for one in found]
    assert set(damage.findings) <= {one.code for one in found}, said
    assert codes(found) <= {*damage.findings, *damage.also}, said
    assert {one.task for one in found if one.code in damage.findings} <= {damage.task} or not damage.task, said


@pytest.mark.parametrize("name", one_of(golden_names(moment="clean"), by=release_of))
def test_a_directory_of_another_application_is_detected_by_changelog_names(tmp_path, name):
    golden = golden_directories()[name]
    application = unpacked(name, tmp_path).rename(tmp_path / "orders")
    found = diagnose(application, guarantee=ProcessingGuarantee(golden.guarantee), release=RELEASES[golden.release])
    strange = {(one.task, one.store) for one in found.findings if one.code == "offset-foreign"}
    named = {
        (database.partition("/")[0], store)
        for database, said in golden.databases.items()
        for store in (database.split("/")[1],)
        if said["rows"] and not database.startswith("global")
    }
    assert strange == {(task, store) for task, store in named if f"{name}-{store}-changelog" in golden.ends}
