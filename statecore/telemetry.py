"""Exports the metrics of a command as OpenTelemetry's environment variables configure; nowhere without them.

OpenTelemetry is imported only if one of these is set::

    OTEL_METRICS_EXPORTER                    otlp, console, or another installed exporter; several by commas; none
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT      the endpoint; alone it means otlp
    OTEL_EXPORTER_OTLP_ENDPOINT              the same for all signals
    OTEL_EXPORTER_OTLP_METRICS_PROTOCOL      http/protobuf (the specification's default) or grpc
    OTEL_EXPORTER_OTLP_PROTOCOL              the same for all signals
    OTEL_SDK_DISABLED                        true: no export

OpenTelemetry itself reads all others (headers, time-outs, interval, resource).

Such variables are often set for every process of a host. So errors in them or in the packages are a note, never an
error: no restore fails because of its metrics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from statecore import __version__
from statecore.metrics import NO_METRICS, CheckpointMetrics, MeteredProgress, Metrics, OpenTelemetryMetrics, Tags
from statecore.progress import Progress

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader

FLUSH_SECONDS = 10.0
"""How long an unresponsive collector may delay the end of a command."""

_EXPORTERS = "opentelemetry_metrics_exporter"
"""Entry point group of metrics exporters."""

_BY_PROTOCOL = {"": "otlp_proto_http", "http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


@contextmanager
def metrics_from_environment(say: Callable[[str], None]) -> Iterator[Metrics]:
    """Provide metrics during the ``with`` block; pending ones are exported at its end.

    ``say`` is called once with the reason if nothing is exported although it is configured.

    An existing meter provider of the process (``opentelemetry-instrument``, an application's own) is used as it is.

    Yields:
        The metrics of OpenTelemetry, or :data:`NO_METRICS`.
    """
    names = configured_exporters()
    if not names:
        yield NO_METRICS
        return
    try:
        provider, end = _provider(names)
        metrics = OpenTelemetryMetrics(provider.get_meter("statecore", __version__))
    except Exception as error:  # any error of an exporter about its settings
        action = (
            "Run pip install '.[metrics]' in a checkout"
            if isinstance(error, ImportError)
            else "Correct the OTEL_ variables"
        )
        say(f"note: Metrics are not exported: {error}. {action}, or set OTEL_METRICS_EXPORTER=none.")
        yield NO_METRICS
        return
    try:
        yield metrics
    finally:
        try:
            end(FLUSH_SECONDS * 1000)
        except Exception as error:
            say(f"note: The last metrics were not exported: {error}")


@contextmanager
def metered(progress: Progress, tags: Tags, say: Callable[[str], None]) -> Iterator[Progress]:
    """A progress listener that also exports the metrics of a restore, as the environment configures."""
    with metered_checkpoints(progress, tags, say) as (told, _):
        yield told


@contextmanager
def metered_checkpoints(
    progress: Progress, tags: Tags, say: Callable[[str], None]
) -> Iterator[tuple[Progress, CheckpointMetrics]]:
    """Like :func:`metered`, together with metrics of checkpoints."""
    with ExitStack() as afterwards:
        with metrics_from_environment(say) as metrics:
            told, checkpoints = MeteredProgress(progress, metrics, tags), CheckpointMetrics(metrics, tags)
            afterwards.callback(told.close)  # after the last export, which includes the remainder
            afterwards.callback(checkpoints.close)
            yield told, checkpoints


def configured_exporters() -> tuple[str, ...]:
    """OpenTelemetry's names of the configured metrics exporters; empty for none."""
    if _variable("OTEL_SDK_DISABLED").lower() == "true":
        return ()
    given = _variable("OTEL_METRICS_EXPORTER")
    if not given and (_variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or _variable("OTEL_EXPORTER_OTLP_ENDPOINT")):
        given = "otlp"
    names = dict.fromkeys(name.strip() for name in given.split(","))
    return tuple(name for name in names if name not in ("", "none"))


def _provider(names: tuple[str, ...]) -> tuple[MeterProvider, Callable[[float], object]]:
    """A meter provider for these exporters, and a function that ends its use within the given milliseconds."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    active = metrics.get_meter_provider()
    if isinstance(active, MeterProvider):
        return active, active.force_flush
    named = _variable("OTEL_SERVICE_NAME") or "service.name=" in _variable("OTEL_RESOURCE_ATTRIBUTES")
    resource = Resource.create({} if named else {"service.name": "statecore"})
    readers = [_reader(exporter) for exporter in [_exporter(name) for name in names]]  # a reader starts a thread
    made = MeterProvider(readers, resource, shutdown_on_exit=False)
    return made, made.shutdown


def _exporter(name: str) -> MetricExporter | MetricReader:
    """Load the exporter of this name; it reads its own settings."""
    from importlib.metadata import entry_points

    if name == "otlp":
        protocol = _variable("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL") or _variable("OTEL_EXPORTER_OTLP_PROTOCOL")
        if protocol not in _BY_PROTOCOL:
            raise ValueError(f"the OTLP protocol {protocol!r} is neither http/protobuf nor grpc")
        name = _BY_PROTOCOL[protocol]
    found = list(entry_points(group=_EXPORTERS, name=name))
    if not found:
        raise ImportError(f"no installed package has the exporter {name!r}")
    made: MetricExporter | MetricReader = found[0].load()()
    return made


def _reader(exporter: MetricExporter | MetricReader) -> MetricReader:
    """The reader of an exporter: itself, or a thread that exports periodically."""
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

    return exporter if isinstance(exporter, MetricReader) else PeriodicExportingMetricReader(exporter)


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()
