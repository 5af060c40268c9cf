"""A spec survives being written and read, and its hash changes with what it says and with nothing else."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.formats.kinds import RETAINED_KINDS, StoreKind
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec, default_changelog
from statecore.spec.reader import parse_spec, read_spec
from statecore.spec.spark_settings import SparkSettings
from statecore.spec.units import format_duration, parse_duration
from statecore.spec.writer import spec_hash, spec_to_json, spec_to_yaml

NAMES = st.one_of(
    st.text("abzAZ019._-", min_size=1, max_size=12).filter(lambda name: name not in (".", "..")),
    st.sampled_from(["on", "no", "null", "1e3", "0x10", "2024-01-01", "1_000", "-", "~".replace("~", "y")]),
)


@st.composite
def stores(draw, application_id: str, subtopology: int) -> StoreSpec:
    name = draw(NAMES)
    kind = draw(st.sampled_from(list(StoreKind)))
    topic = draw(NAMES) if subtopology < 0 or draw(st.booleans()) else default_changelog(application_id, name)
    retention = draw(st.integers(1, 10**9)) if kind in RETAINED_KINDS else None
    return StoreSpec(name, kind, subtopology, topic, retention)


@st.composite
def specs(draw) -> ApplicationSpec:
    application_id = draw(NAMES)
    by_name: dict[str, StoreSpec] = {}
    for store in draw(st.lists(st.integers(0, 3).flatmap(lambda n: stores(application_id, n)), min_size=1, max_size=4)):
        by_name.setdefault(store.name, store)
    global_by_name: dict[str, StoreSpec] = {}
    for store in draw(st.lists(stores(application_id, -1), max_size=2)):
        if store.name not in by_name:
            global_by_name.setdefault(store.name, store)
    kafka = draw(st.fixed_dictionaries({}, optional={"client_id": NAMES, "ssl_check_hostname": st.booleans(),
                                                     "request_timeout_ms": st.integers(1, 9999)}))  # fmt: skip
    return ApplicationSpec(
        application_id=application_id,
        bootstrap_servers="localhost:9092",
        processing_guarantee=draw(st.sampled_from(ProcessingGuarantee)),
        # Stores are kept by subtopology, as a file has them.
        stores=tuple(sorted(by_name.values(), key=lambda store: store.subtopology)),
        global_stores=tuple(global_by_name.values()),
        kafka=kafka,
        kafka_declared=kafka,
        kafka_connection=draw(st.none() | NAMES),
        transactional_state_stores=draw(st.booleans()),
    )


OUT_OF_LINE = ["\n", "\r", "\x07", "\x7f", "\x85", "\u2028", "\ufeff", "\U0001f642", '"', "\\", "\t", "ö", "# ", "'"]


@pytest.mark.parametrize("char", OUT_OF_LINE)
def test_no_text_leaves_its_value_or_comment(char):
    text = f"a{char}checkpoint_interval: 1s"
    stores = (StoreSpec("a", StoreKind.KEY_VALUE, 0, "app-a-changelog"),)
    declared = ApplicationSpec("app", "host:1", ProcessingGuarantee.AT_LEAST_ONCE, stores, (),
                               kafka={"client_id": text}, kafka_declared={"client_id": text},
                               spark=SparkSettings(conf={"spark.app.name": text}))  # fmt: skip
    written = spec_to_yaml(declared, header=(text,), notes={"a": text, "application_id": text})
    assert read_spec(written) == declared


@given(specs())
def test_yaml_and_json_read_back_to_the_same_spec(spec):
    assert read_spec(spec_to_yaml(spec, header=("a: b",), notes={s.name: "guess: {" for s in spec.stores})) == spec
    assert parse_spec(json.loads(spec_to_json(spec)), "spec") == spec
    assert spec_hash(read_spec(spec_to_yaml(spec))) == spec_hash(spec)


@given(st.integers(0, 10**12))
def test_durations_read_back(milliseconds):
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("10m", 600_000), ("24h", 86_400_000), ("7d", 604_800_000), ("1ms", 1),
     ("0s", 0), ("", None), ("5", None), ("-5s", None), ("1.5h", None), ("1h30m", None), ("٣s", None)],
)  # fmt: skip
def test_durations(text, milliseconds):
    assert parse_duration(text) == milliseconds


SPEC = read_spec(
    "{application_id: a, bootstrap_servers: 'h:1', processing_guarantee: at_least_once, "
    "kafka: {sasl_plain_password: '${P}'}, subtopologies: {0: {stores: {s: {kind: key-value}, t: {kind: list}}}}}",
    environ={"P": "secret"},
)


def test_the_hash_ignores_client_settings_and_order_and_sees_everything_else():
    elsewhere = dataclasses.replace(SPEC, kafka={}, kafka_declared={}, kafka_connection="c", source="x")
    assert spec_hash(elsewhere) == spec_hash(SPEC)
    assert spec_hash(dataclasses.replace(SPEC, stores=SPEC.stores[::-1])) == spec_hash(SPEC)
    first = SPEC.stores[0]
    changes = [
        dataclasses.replace(SPEC, application_id="b"),
        dataclasses.replace(SPEC, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2),
        dataclasses.replace(SPEC, transactional_state_stores=True),
        dataclasses.replace(SPEC, stores=SPEC.stores[:1]),
        *(
            dataclasses.replace(SPEC, stores=(dataclasses.replace(first, **change), SPEC.stores[1]))
            for change in (
                {"kind": StoreKind.TIMESTAMPED_KEY_VALUE},
                {"subtopology": 1},
                {"changelog": "other"},
                {"retention_ms": 5},
            )
        ),
    ]
    assert len({spec_hash(spec) for spec in (SPEC, *changes)}) == len(changes) + 1


def test_no_written_form_holds_a_secret():
    assert "secret" not in spec_to_json(SPEC) + spec_to_yaml(SPEC)
    assert "${P}" in spec_to_yaml(SPEC)
    elsewhere = parse_spec(json.loads(spec_to_json(SPEC)), "spec", environ={"P": "other"})
    assert elsewhere.kafka["sasl_plain_password"] == "other"
