"""What a spec says, and everything that can be wrong with one."""

# ruff: noqa: E501 (one case a line)

from __future__ import annotations

import json
import os
import pickle
import re
import warnings

import pytest
import yaml

from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.spec.client_settings import CLIENT_SETTINGS, SECRET_SETTINGS
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import load_spec, parse_spec, read_spec
from statecore.spec.writer import spec_to_yaml
from tests.harness.raising import raises

GOOD = """\
application_id: orders
bootstrap_servers: localhost:9092, [::1]:9093
processing_guarantee: exactly_once_v2           # or at_least_once
kafka: {security_protocol: SASL_SSL, sasl_plain_password: "${KAFKA_PASSWORD}", request_timeout_ms: "${TIMEOUT}"}
subtopologies:
  "0":
    stores:
      orders-by-id: {kind: timestamped-key-value}
      clicks:       {kind: timestamped-window, retention: 24h, segment_interval: 90s}
      profile:      {kind: key-value, changelog: profiles}
  1:
    stores:
      on:           {kind: '?'}
      2024:         {kind: in-memory}
global_stores:
  products: {kind: timestamped-key-value, topic: products}
"""
ENVIRON = {"KAFKA_PASSWORD": "s3cr3t:true", "TIMEOUT": "4000"}


def read(text: str):
    return read_spec(text, source="stores.yaml", environ=ENVIRON)


def problems_of(text: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read(text)
    assert caught.value.exit_code == 13
    return caught.value.context["problems"]


def test_every_section_of_a_valid_spec_is_read():
    spec = read(GOOD)
    assert (spec.application_id, spec.bootstrap_servers) == ("orders", "localhost:9092,[::1]:9093")
    assert spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    assert [(s.name, s.subtopology, s.kind, s.changelog) for s in spec.stores] == [
        ("orders-by-id", 0, StoreKind.TIMESTAMPED_KEY_VALUE, "orders-orders-by-id-changelog"),
        ("clicks", 0, StoreKind.TIMESTAMPED_WINDOW, "orders-clicks-changelog"),
        ("profile", 0, StoreKind.KEY_VALUE, "profiles"),
        ("on", 1, StoreKind.UNKNOWN, "orders-on-changelog"),
        ("2024", 1, StoreKind.IN_MEMORY, "orders-2024-changelog"),
    ]
    clicks = spec.store("clicks")
    assert clicks is not None
    assert (clicks.retention_ms, clicks.segment_interval_ms, clicks.line) == (86_400_000, 90_000, 9)
    assert [(s.name, s.changelog, s.is_global) for s in spec.global_stores] == [("products", "products", True)]
    assert dict(spec.kafka) == {
        "security_protocol": "SASL_SSL",
        "sasl_plain_password": "s3cr3t:true",
        "request_timeout_ms": 4000,
    }


def test_whether_state_stores_are_transactional():
    assert not read(GOOD).transactional_state_stores
    assert read(f"transactional_state_stores: true\n{GOOD}").transactional_state_stores
    assert not read(f"transactional_state_stores: false\n{GOOD}").transactional_state_stores
    (problem,) = problems_of(f"transactional_state_stores: 1\n{GOOD}")
    assert "1:29: transactional_state_stores: found '1'" in problem


def test_a_secret_is_in_no_representation_of_the_spec():
    spec = read(GOOD)
    assert "s3cr3t" not in repr(spec)
    assert "s3cr3t" not in json.dumps(dict(spec.kafka_declared))
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_mapping_reads_as_the_file_does():
    text = GOOD.replace(" on: ", " 'on': ")  # to YAML's own loader a bare "on" is a boolean
    assert parse_spec(yaml.safe_load(text), environ=ENVIRON) == read(GOOD)
    with pytest.raises(Invalid, match="found 'True'"):
        parse_spec(yaml.safe_load(GOOD), environ=ENVIRON)


def test_a_mapping_without_a_file_names_the_path_instead_of_a_line():
    document = yaml.safe_load(GOOD.replace(" on: ", " 'on': "))
    document["subtopologies"]["0"]["stores"]["clicks"]["retention"] = 24
    with pytest.raises(Invalid) as caught:
        parse_spec(document, "params.spec", environ=ENVIRON)
    (problem,) = caught.value.context["problems"]
    assert problem.split(": ")[:2] == ["params.spec", "subtopologies.0.stores.clicks.retention"]
    assert "found '24'" in problem


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("application_id: orders", "applicationid: orders", "1:1: unknown key 'applicationid'; did you mean 'application_id'?"),
        ("application_id: orders", "application_id:", "1:16: application_id: found nothing, expected an application id"),
        ("application_id: orders", "application_id: a/b", "1:17: application_id: found 'a/b', expected an application id of letters"),
        ("application_id: orders", "application_id: [a]", "1:17: application_id: found a list, expected an application id"),
        ("localhost:9092,", "localhost,", "2:20: bootstrap_servers: found 'localhost, [::1]:9093', expected host:port"),
        ("localhost:9092,", "localhost:99999,", "2:20: bootstrap_servers: found"),
        ("exactly_once_v2", "exactly-once-v2", "3:23: processing_guarantee: found 'exactly-once-v2', expected at_least_once or exactly_once_v2; did you mean 'exactly_once_v2'?"),
        ("exactly_once_v2", "exactly_once", "Kafka Streams 4 supports only exactly_once_v2"),
        ("security_protocol", "security_protokol", "4:9: kafka: unknown client setting 'security_protokol'; did you mean 'security_protocol'?"),
        ("SASL_SSL", "TLS", "4:28: kafka.security_protocol: expected one of PLAINTEXT, SSL"),
        ("{KAFKA_PASSWORD}", "{ABSENT}", "kafka.sasl_plain_password: the environment variable ABSENT is not set"),
        ("{KAFKA_PASSWORD}", "{}", "expected ${NAME} with the name of an environment variable"),
        ('"${TIMEOUT}"', "soon", "4:100: kafka.request_timeout_ms: expected a whole number"),
        ('request_timeout_ms: "${TIMEOUT}"', "ssl_check_hostname: 5", "kafka.ssl_check_hostname: expected true or false"),
        ('"${KAFKA_PASSWORD}"', "hunter2", "a secret is written out, expected a reference to the environment: sasl_plain_password: ${NAME}"),
        ("kafka: {", "kafka: {bootstrap_servers: x, ", "'bootstrap_servers' belongs at the top level"),
        ("kafka: {", "kafka_connection: [a]\nkafka: {", "4:19: kafka_connection: found a list, expected the id of an Airflow"),
        ("kafka: {", "kafka_connection: a b\nkafka: {", "4:19: kafka_connection: found 'a b', expected the id of an Airflow"),
        ('  "0":', '  "zero":', "6:3: subtopologies: found 'zero', expected a subtopology number"),
        ('  "0":', '  "1":', "11:3: subtopologies: duplicate key '1' (first on line 6)"),
        ("orders-by-id:", "orders/by-id:", "found 'orders/by-id', expected a store name"),
        ("orders-by-id:", "profile:", "duplicate key 'profile' (first on line 8)"),
        ("{kind: timestamped-key-value}", "timestamped-key-value", "8:21: subtopologies.0.stores.orders-by-id: found 'timestamped-key-value', expected a store, such as"),
        ("{kind: timestamped-key-value}", "{kind: timestamp-key-value}", "8:28: subtopologies.0.stores.orders-by-id.kind: found 'timestamp-key-value', expected a kind of store; did you mean 'timestamped-key-value'?"),
        ("{kind: timestamped-key-value}", "{}", "8:21: subtopologies.0.stores.orders-by-id: 'kind' is missing, expected the kind of the store: key-value"),
        ("{kind: timestamped-key-value}", "{kind: key-value, retention: 1h}", "a store of kind 'key-value' has no 'retention'"),
        ("{kind: key-value, changelog", "{kind: key-value, chngelog", "10:39: subtopologies.0.stores.profile: unknown key 'chngelog'; did you mean 'changelog'?"),
        ("retention: 24h", "retention: 24 hours", "9:59: subtopologies.0.stores.clicks.retention: found '24 hours', expected a duration such as 90s, 10m, 24h or 7d"),
        ("retention: 24h", f"retention: {'9' * 5000}h", "expected a duration such as 90s, 10m, 24h or 7d"),
        ("retention: 24h", "retention: 106751991168d", "found '106751991168d', expected a duration such as 90s"),
        ("segment_interval: 90s", "segment_interval: 0s", "found '0s', expected a duration above zero"),
        ("retention: 24h, ", "", "'retention' is missing; a store of kind 'timestamped-window' needs it"),
        ("  1:\n    stores:", "  1:\n    store:", "'stores' is missing"),
        (", topic: products", "", "16:13: global_stores.products: 'topic' is missing, expected the source topic"),
        ("topic: products", "changelog: products", "unknown key 'changelog'"),
        ("  products:", "  profile:", "the store 'profile' is declared twice (first on line 10)"),
        ("      clicks:", "      rocksdb:", "a store of kind 'timestamped-window' cannot be called 'rocksdb'"),
        ("      clicks:", "      .checkpoint:", "a store of kind 'timestamped-window' cannot be called '.checkpoint'"),
        ("      clicks:", "      orders-by-id.position:", "cannot be called 'orders-by-id.position' beside the store 'orders-by-id', whose position"),
        ("{kind: in-memory}", "{kind: in-memory", "this is not YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_was_expected(good, bad, problem):
    assert good in GOOD
    found = problems_of(GOOD.replace(good, bad, 1))
    assert all(line.startswith("stores.yaml:") for line in found)
    assert any(problem in line for line in found), found
    assert not any("s3cr3t" in line or "hunter2" in line for line in found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "- a\n- b\n",
        "hello",
        "a: 1\n---\nb: 2\n",
        "\t\tx: {",
        "a: &a [*a]\n",
        "? {a: b}\n: c\n",
        "a: \x00",
        "[" * 30_000 + "]" * 30_000,
        "{a: " * 30_000 + "}" * 30_000,
        "".join(" " * level + "a:\n" for level in range(1000)),
        "a0: &a0 [b]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 100)),
    ],
)
def test_a_document_that_is_no_spec_is_refused_without_a_crash(text):
    assert problems_of(text)


def test_a_mapping_that_is_nested_deeply_is_refused_without_a_crash():
    document: dict[str, object] = {}
    for _ in range(600):
        document = {"a": [document]}
    with pytest.raises(Invalid):
        parse_spec(document, "params.spec", environ=ENVIRON)


def test_all_problems_are_reported_at_once_in_the_order_of_the_file():
    text = GOOD.replace("kind: in-memory", "kind: inmemory").replace("orders\n", "a b\n", 1).replace("24h", "24")
    assert [line.split(":")[1] for line in problems_of(text)] == ["1", "9", "14"]


def test_aliases_that_multiply_are_refused_quickly():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert any("too large" in line for line in problems_of("\n".join(lines)))


def test_nothing_declared_is_refused():
    text = "application_id: a\nbootstrap_servers: h:1\nprocessing_guarantee: at_least_once\n"
    assert "no store is declared" in problems_of(text)[0]


def test_a_store_that_is_not_logged_or_not_decided_is_read_and_written_as_such():
    text = GOOD.replace(
        "profile:      {kind: key-value, changelog: profiles}",
        'profile:      {kind: timestamped-window, changelog: none}\n      other:        {kind: key-value, changelog: "?"}',
    )
    spec = read(text)
    profile, other = spec.store("profile"), spec.store("other")
    assert (profile.is_logged, profile.is_undecided, profile.retention_ms) == (False, False, None)
    assert (other.is_logged, other.is_undecided, other.changelog) == (True, True, "?")
    assert read(spec_to_yaml(spec)) == spec
    assert "window, changelog: none}" in spec_to_yaml(spec)


def test_a_retention_of_nothing_is_one():
    """Joins whose windows and grace are zero have it."""
    store = read(GOOD.replace("retention: 24h", "retention: 0s")).store("clicks")
    assert store is not None
    assert (store.retention_ms, store.segment_interval_ms) == (0, 90_000)


def test_every_client_setting_of_a_spec_is_one_that_the_client_takes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the import
        from kafka.net.manager import KafkaConnectionManager
    of_an_endpoint = {name for name in CLIENT_SETTINGS if name.startswith("sasl_oauthbearer_")}
    assert set(KafkaConnectionManager.DEFAULT_CONFIG) | of_an_endpoint >= CLIENT_SETTINGS >= SECRET_SETTINGS


def test_an_absent_file_is_not_found_and_a_directory_is_invalid(tmp_path):
    with pytest.raises(NotFound, match=r"no spec .*absent\.yaml"):
        load_spec(tmp_path / "absent.yaml")
    with pytest.raises(Invalid, match="cannot be read"):
        load_spec(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"application_id: caf\xe9\n")
    with pytest.raises(Invalid, match="not UTF-8"):
        load_spec(tmp_path / "latin.yaml")


@pytest.mark.parametrize("name", ["größe", "a b", "a: b", "ö" * 121, "#"])
def test_only_a_store_that_is_not_logged_may_have_a_name_that_no_topic_can_have(name):
    stores = {"on": {"kind": "?"}, name: {"kind": "key-value", "changelog": "none"}}
    mapping = {**yaml.safe_load(GOOD), "kafka": {}, "subtopologies": {"0": {"stores": stores}}}
    assert [store.name for store in parse_spec(mapping).stores] == ["on", name]
    stores[name]["changelog"] = "profiles"
    with raises(Invalid, "spec-invalid"):
        parse_spec(mapping)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\x85b", "a\0b", "ö" * 122])
def test_a_store_that_is_not_logged_has_a_name_that_a_directory_can_have(name):
    stores = {name: {"kind": "key-value", "changelog": "none"}}
    with raises(Invalid, "spec-invalid"):
        parse_spec({**yaml.safe_load(GOOD), "kafka": {}, "subtopologies": {"0": {"stores": stores}}})


def test_a_file_is_named_in_its_problems(tmp_path):
    path = tmp_path / "stores.yaml"
    path.write_text(GOOD.replace("localhost:9092,", "localhost,"))
    with pytest.raises(Invalid, match=rf"{path}:2:20: "):
        load_spec(path, environ=ENVIRON)


def test_a_right_spec_in_a_poor_environment_is_not_to_be_corrected():
    with pytest.raises(Invalid) as refused:
        read_spec(GOOD, environ={})
    assert refused.value.action.startswith("Set KAFKA_PASSWORD")
    assert "kafka_<application id>" in refused.value.action
    with pytest.raises(Invalid) as refused:
        read_spec(GOOD.replace("exactly_once_v2", "twice"), environ={})
    assert refused.value.action.startswith("Correct the spec")


def test_a_pipe_is_no_spec_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "stores.yaml")
    with raises(Invalid, "file-not-regular"):
        load_spec(tmp_path / "stores.yaml")
    with raises(Invalid, "file-not-regular"):
        load_spec("/dev/null")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("application_id: orders", 'application_id: "orders'),
        ("application_id: orders", "application_id: 'orders"),
        ("bootstrap_servers: localhost:9092, [::1]:9093", "bootstrap_servers: \"localhost:9092 # it's"),
    ],
)
def test_a_quote_without_a_partner_is_reported_with_its_place(old, new):
    assert old in GOOD
    line = GOOD.replace(old, new).splitlines().index(new) + 1
    with raises(Invalid, "spec-invalid") as caught:
        read(GOOD.replace(old, new))
    (problem,) = caught.value.context["problems"]
    column = new.index(": ") + 3
    assert re.search(rf":{line}:{column}: ", problem), problem
    assert "quote" in problem
