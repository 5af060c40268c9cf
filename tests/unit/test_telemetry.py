"""Whether and where metrics go is what OpenTelemetry's own variables say, and never a reason to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, InMemoryMetricReader

from statecore.metrics import NO_METRICS, RESTORE_REMAINING, RESTORED, OpenTelemetryMetrics
from statecore.progress import NullProgress
from statecore.telemetry import configured_exporters, metered, metrics_from_environment
from tests.harness.collector import Collector

TAGS = {"application-id": "orders"}


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


class Said(list[str]):
    """Notes that were said."""

    def __call__(self, line: str) -> None:
        self.append(line)


@pytest.mark.parametrize(
    ("variables", "exporters"),
    [
        ({}, ()),
        ({"OTEL_METRICS_EXPORTER": ""}, ()),
        ({"OTEL_METRICS_EXPORTER": "none"}, ()),
        ({"OTEL_METRICS_EXPORTER": " console , otlp,"}, ("console", "otlp")),
        ({"OTEL_METRICS_EXPORTER": "console,console"}, ("console",)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, ()),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, ()),
        ({"OTEL_METRICS_EXPORTER": "console", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, ("console",)),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, ()),
    ],
)
def test_environment_variables_choose_the_exporters(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], exporters: tuple[str, ...]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert configured_exporters() == exporters


def test_without_the_variables_nothing_is_imported() -> None:
    code = (
        "import sys; from statecore.telemetry import metered; from statecore.progress import NullProgress\n"
        "with metered(NullProgress(), {}, print) as told: told.phase('read', 3, 'offsets'); told.advance(3)\n"
        "sys.exit(any(name.split('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_collector_gets_what_was_restored_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    said = Said()
    with metered(NullProgress(), TAGS, said) as progress:
        progress.phase("read", 1000, "offsets")
        progress.advance(700)
        progress.done()
    assert collector.last(RESTORED.name) == {("application-id", "orders"): 700}
    assert collector.last(RESTORE_REMAINING.name) == {("application-id", "orders"): 300}
    assert collector.services == {"statecore"}
    assert said == []


def test_metrics_are_exported_while_it_runs_and_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{collector.endpoint}/v1/metrics")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")

    def fail_on_the_way() -> None:
        with metered(NullProgress(), TAGS, Said()) as progress:
            progress.phase("read", 10, "offsets")
            collector.wait_for(RESTORE_REMAINING.name, 10)
            progress.advance(4)
            raise KeyError

    with pytest.raises(KeyError):
        fail_on_the_way()
    assert collector.last(RESTORE_REMAINING.name) == {("application-id", "orders"): 6}
    assert collector.services == {"nightly"}


def test_the_console_gets_them_too() -> None:
    code = (
        "from statecore.telemetry import metered; from statecore.progress import NullProgress\n"
        "with metered(NullProgress(), {'application-id': 'orders'}, print) as told:\n"
        "    told.phase('read', 3, 'offsets'); told.advance(2)"
    )
    environment = {**os.environ, "OTEL_METRICS_EXPORTER": "console"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    (resource,) = json.loads(done.stdout)["resource_metrics"]
    found = {
        metric["name"]: metric["data"]["data_points"][0]["value"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
    }
    assert found == {RESTORED.name: 2, RESTORE_REMAINING.name: 1}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"OTEL_METRICS_EXPORTER": "carrier-pigeon"},
            ("'carrier-pigeon'", "Run pip install '.[metrics]' in a checkout"),
        ),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            ("'http/json'", "Correct the OTEL_ variables"),
        ),
        (
            {"OTEL_METRICS_EXPORTER": "console", "OTEL_METRIC_EXPORT_INTERVAL": "-1"},
            ("-1", "Correct the OTEL_ variables"),
        ),
    ],
)
def test_a_wrong_setting_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: tuple[str, ...]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = Said()
    with metrics_from_environment(said) as metrics:
        assert metrics is NO_METRICS
    (line,) = said
    assert line.startswith("note: ")
    assert all(word in line for word in (*words, "OTEL_METRICS_EXPORTER=none"))


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.sdk.metrics"])
def test_a_missing_package_is_a_note(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    monkeypatch.setitem(sys.modules, missing, None)
    said = Said()
    with metrics_from_environment(said) as metrics:
        assert metrics is NO_METRICS
    (line,) = said
    assert "Run pip install '.[metrics]' in a checkout" in line


def test_a_last_export_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")

    def gone(*_: object, **__: object) -> None:
        raise OSError("the collector has gone")

    monkeypatch.setattr(ConsoleMetricExporter, "shutdown", gone)
    said = Said()
    with metrics_from_environment(said) as metrics:
        assert isinstance(metrics, OpenTelemetryMetrics)
    (line,) = said
    assert "the collector has gone" in line


def test_a_provider_that_the_process_has_already_is_used_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(api, "get_meter_provider", lambda: provider)
    for _ in range(2):
        with metrics_from_environment(Said()) as metrics:
            metrics.add(RESTORED, 5, TAGS)
    data = reader.get_metrics_data()
    assert data is not None
    (point,) = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert point.value == 10
    provider.shutdown()
