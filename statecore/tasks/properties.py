"""A processor's settings from Kafka Streams' configuration names (``StreamsConfig``).

==========================================  ==========================================================================
``application.id``                          names changelogs, directories, the consumer group
``bootstrap.servers``                       the cluster
``state.dir``                               the directory of the stores; ``/tmp/kafka-streams`` by default
``processing.guarantee``                    ``at_least_once`` (default) or ``exactly_once_v2``
``commit.interval.ms``                      30 000, exactly-once 100
``statestore.uncommitted.max.bytes``        64 MiB; -1 for no limit
``max.block.ms``                            60 000: how long one call of a commit may wait for brokers
``statestore.checkpoint.interval.ms``       300 000
``security.protocol``, ``sasl.…``, ...      how to connect; see :mod:`statecore.spec.java_properties`
==========================================  ==========================================================================

Every other name is ignored, as Kafka Streams does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.filesystem import AnyPath, validated_path
from statecore.formats.releases import PLAIN_PARENT
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.java_properties import JavaConfiguration, Properties, load_properties, translate
from statecore.spec.model import ProcessingGuarantee
from statecore.stores.settings import StoreSettings
from statecore.tasks.checkpoint_policy import INTERVAL_PROPERTY, CheckpointSettings
from statecore.tasks.commit_policy import CommitSettings
from statecore.tasks.property_values import number, text
from statecore.tasks.restoration.restore import RestoreSettings


@dataclass(frozen=True)
class ProcessorSettings:
    """The settings of a processor.

    Attributes:
        application_id: the application.
        bootstrap_servers: ``host:port``, several with commas.
        state_dir: parent of the applications' directories.
        guarantee: the processing guarantee.
        commit: when to commit.
        checkpoint: when to write offsets beside the stores.
        store: settings of each store.
        restore: how to restore a store: committed records under exactly-once, all under at-least-once.
        kafka: further client settings by kafka-python's names, for your own consumers and producers too. May hold
            secrets; never shown.
    """

    application_id: str
    bootstrap_servers: str
    state_dir: Path
    guarantee: ProcessingGuarantee = ProcessingGuarantee.AT_LEAST_ONCE
    commit: CommitSettings = field(default_factory=CommitSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    restore: RestoreSettings = field(default_factory=RestoreSettings)
    kafka: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object] | AnyPath, environ: Mapping[str, str] = os.environ
    ) -> ProcessorSettings:
        """The settings under Kafka Streams' names; unknown names are ignored.

        Args:
            properties: names and values (texts or numbers), or the path of a ``.properties`` file.
            environ: fills in ``${env:NAME}`` in connection settings.

        Raises:
            Invalid: ``application.id`` or ``bootstrap.servers`` is missing; a value is malformed; a connection setting
                cannot be translated for a client that is not Java.
            NotFound: there is no such file.
        """
        given: Mapping[str, object]
        if isinstance(properties, Mapping):
            given, source = properties, "the properties"
        else:
            given, source = load_properties(validated_path(properties)), os.fspath(properties)
        try:
            texts = given if isinstance(given, Properties) else {name: str(value) for name, value in given.items()}
            java = translate(texts, source)
        except Invalid as error:  # its action is for the command line
            raise error.restated(error.what, action="Do what each line says.") from error
        kafka = _expanded(java, {**environ, **java.secrets})
        guarantee = java.processing_guarantee or ProcessingGuarantee.AT_LEAST_ONCE
        commit = CommitSettings.from_properties(given, guarantee)
        default = CheckpointSettings()
        return cls(
            text(given, "application.id"),
            text(given, "bootstrap.servers"),
            Path(text(given, "state.dir", str(Path(tempfile.gettempdir(), "kafka-streams")))),
            guarantee,
            commit,
            CheckpointSettings(number(given, INTERVAL_PROPERTY, default.interval_ms)),
            StoreSettings(uncommitted_max_bytes=commit.uncommitted_max_bytes),
            RestoreSettings(guarantee.isolation),
            kafka,
        )

    def changelog(self, store: str, partition: int) -> TopicPartition:
        """A store's changelog partition (``ProcessorStateManager.storeChangelogTopic``)."""
        return TopicPartition(f"{self.application_id}-{store}-changelog", partition)

    def store_path(self, store: str, task: str) -> Path:
        """Path of a key-value store, in Kafka Streams' layout; ``task`` is ``0_1``: subtopology and partition."""
        return self.state_dir / self.application_id / task / PLAIN_PARENT / store


def _expanded(java: JavaConfiguration, environ: Mapping[str, str]) -> Mapping[str, Any]:
    if not java.client:
        return {}
    from statecore.changelog.client import connection_settings
    from statecore.spec.client_settings import client_settings  # loads PyYAML

    settings, _ = client_settings(java.client, environ, source=java.source)
    return connection_settings(settings, java.bootstrap_servers or "")
