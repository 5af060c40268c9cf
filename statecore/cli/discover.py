"""``statecore discover``: write a first spec of an application."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from statecore.cli.output import Output
from statecore.cli.request_options import add_timeout, path_of
from statecore.errors import Invalid, NotFound, StatecoreError, missing_option
from statecore.system_errors import system_error
from statecore.words import number_of

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster
    from statecore.changelog.streams_groups import StreamsGroup
    from statecore.discover.answers import Answers
    from statecore.discover.discover import Discovery
    from statecore.discover.spec_draft import OpenStore


DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=path_of, metavar="FILE", help="output file (default: stdout)")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    application = parser.add_argument_group("application")
    application.add_argument(
        "--config",
        type=path_of,
        metavar="FILE",
        help="the application's .properties file: cluster, application id, processing guarantee, client settings",
    )
    application.add_argument(
        "--application-id", metavar="ID", help="Kafka Streams' application.id (default: as in --config)"
    )
    application.add_argument(
        "--topology",
        type=path_of,
        metavar="FILE",
        help="the output of Topology.describe() (default: the topology of the streams group on the brokers)",
    )
    application.add_argument(
        "--state-dir", type=path_of, metavar="DIR", help="the application's state.dir, to detect kinds and tasks"
    )
    application.add_argument(
        "--processing-guarantee",
        choices=("at_least_once", "exactly_once_v2"),
        help="the application's processing.guarantee (default: as in --config, else guessed from the changelogs)",
    )
    brokers = parser.add_argument_group("brokers")
    brokers.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="the cluster (default: as in --config)")
    brokers.add_argument(
        "--kafka",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="a client setting by kafka-python's name, such as security_protocol=SSL; secrets as '${NAME}'; repeat the "
        "option for each",
    )
    add_timeout(brokers)
    stores = parser.add_argument_group("what cannot be detected")
    stores.add_argument(
        "--kind",
        action="append",
        type=_pair,
        default=[],
        metavar="STORE=KIND",
        help="the kind of a store; repeat the option for each. On a terminal there is a prompt for it",
    )
    stores.add_argument(
        "--changelog",
        action="append",
        type=_pair,
        default=[],
        metavar="STORE=TOPIC",
        help="the topic from which a store is restored, or none if it is not logged; repeat the option for each",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    topology = _read_topology(arguments.topology)
    _check_output(arguments.output, force=arguments.force)
    found = _discover(arguments, topology, output)

    from statecore.spec.writer import spec_to_mapping, spec_to_yaml

    spec, notes = found
    text = spec_to_yaml(
        spec, header=(f"The stores of {spec.application_id}, as discovered.", *notes.general), notes=notes.by_name
    )
    if arguments.output is None:
        output.text(text.rstrip("\n"))
    else:
        try:
            arguments.output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise system_error(
                error, f"{arguments.output} cannot be written", action="Name another file with --output."
            ) from error
        count = len(spec.stores) + len(spec.global_stores)
        output.say(f"{arguments.output}: {number_of(count, 'store')} of {spec.application_id}")
        for line in notes.general:
            if line not in notes.questions:
                output.say(line)
    if notes.open:
        output.say(
            f"Not detected for {', '.join(one.store for one in notes.open)}: replace each '?' in the spec, whose "
            "comments say by what, or give --kind STORE=KIND or --changelog STORE=TOPIC."
        )
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "spec": spec_to_mapping(spec),
            "notes": {"general": notes.general, "beside": notes.by_name},
            "open": [one.to_json() for one in notes.open],
            "output": str(arguments.output) if arguments.output else None,
        }
    )
    return 0


def _discover(arguments: argparse.Namespace, topology: str | None, output: Output) -> Discovery:
    from statecore.changelog.cluster import Cluster
    from statecore.discover.answers import Answers, parse_kind
    from statecore.discover.discover import discover
    from statecore.jobs.fields.catalog import check_patience
    from statecore.spec.client_settings import client_settings
    from statecore.spec.java_properties import JavaConfiguration, load_java_configuration
    from statecore.spec.model import ProcessingGuarantee

    check_patience("timeout", arguments.timeout)
    config = load_java_configuration(arguments.config) if arguments.config else JavaConfiguration("--config")
    servers = _given(arguments.bootstrap_servers, config.bootstrap_servers, "--bootstrap-servers", arguments.config)
    application_id = _given(arguments.application_id, config.application_id, "--application-id", arguments.config)
    given_settings = {**config.client, **dict(arguments.kafka)}
    settings, declared = client_settings(
        given_settings, {**os.environ, **config.secrets}, source="--config and --kafka"
    )
    given = arguments.processing_guarantee
    answers = Answers(
        {store: parse_kind(kind) for store, kind in arguments.kind},
        dict(arguments.changelog),
    )
    on_terminal = not output.json and sys.stdin.isatty() and sys.stderr.isatty()
    with Cluster(servers, settings, timeout=arguments.timeout) as cluster:
        cluster.bootstrap_servers = ",".join(cluster.addresses)  # as the spec has them
        group = None
        if topology is None:
            group = _group(cluster, application_id, required=arguments.state_dir is None, output=output)
        found = discover(
            cluster,
            application_id,
            state_dir=arguments.state_dir,
            group=group,
            topology_text=topology,
            topology_source=str(arguments.topology),
            processing_guarantee=ProcessingGuarantee(given) if given else config.processing_guarantee,
            transactional_state_stores=config.transactional_state_stores,
            kafka_declared=declared,
            dsl_store_format=config.dsl_store_format,
            answers=answers,
            ask=ask_on(sys.stdin, output.say) if on_terminal else None,
        )
    found.notes.general += [f"{config.source}: {remark}." for remark in config.remarks]
    if config.in_memory:
        found.notes.general.append(
            f"With {config.source} the DSL's stores are in memory by default: declare them as in-memory, or they are "
            "built in vain."
        )
    return found


def ask_on(answers: TextIO, say: Callable[[str], None]) -> Callable[[Sequence[OpenStore]], Answers]:
    """A function that asks for every open store, after it has listed all of them."""
    from statecore.discover.answers import Answers, parse_kind
    from statecore.formats.kinds import StoreKind
    from statecore.spec.model import NO_CHANGELOG

    def asked(question: str, check: Callable[[str], object]) -> str:
        while True:
            say(question)
            answer = answers.readline().strip()
            if not answer:
                return ""
            try:
                check(answer)
            except Invalid as error:
                say(f"{error.what} {error.action}")
                continue
            return answer

    def ask(open_stores: Sequence[OpenStore]) -> Answers:
        kinds: dict[str, StoreKind] = {}
        changelogs: dict[str, str] = {}
        say("These could not be determined. Answer as the application declares them (an empty answer leaves a '?'):")
        for store in open_stores:
            say(store.line)
        for store in open_stores:
            if len(store.kinds) != 1:
                choices = ", ".join(map(str, store.kinds)) or "a kind"
                answer = asked(
                    f"Kind of {store.store}? {choices}", partial(parse_kind, store=store.store, among=store.kinds)
                )
                if answer:
                    kinds[store.store] = StoreKind(answer)
            if store.changelogs:
                # Whether the topic exists is checked later, for all answers together.
                choices = ", ".join(store.changelogs if len(store.changelogs) > 1 else (NO_CHANGELOG, "a topic"))
                answer = asked(f"Changelog of {store.store}? {choices}", str)
                if answer:
                    changelogs[store.store] = answer
        return Answers(kinds, changelogs)

    return ask


def _group(cluster: Cluster, application_id: str, *, required: bool, output: Output) -> StreamsGroup | None:
    """The application's streams group; ``None`` if it is not needed and cannot be read."""
    from statecore.changelog.streams_groups import streams_group

    cluster.brokers()  # a cluster that does not answer is an error in any case
    try:
        return streams_group(cluster, application_id)
    except StatecoreError as error:
        if required:
            raise
        if not isinstance(error, NotFound):
            output.say(f"The topology of the group was not used: {error}")
        return None


def _given(argument: str | None, configured: str | None, name: str, config: Path | None) -> str:
    value = argument or configured
    if value is None:
        where = f"{config} does not have it" if config is not None else "there is no --config"
        raise missing_option(
            f"{name} was not given, and {where}.",
            f"Give {name}, or a --config that has it.",
            name.removeprefix("--").replace("-", "_"),
        )
    return value


def _read_topology(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"The file {path} does not exist.",
            code="file-not-found",
            action="Name a file with the output of Topology.describe().",
            path=str(path),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise system_error(error, f"{path} cannot be read", action="Name a text file.") from error


def _check_output(path: Path | None, *, force: bool) -> None:
    """Refuse an output file before the work is done."""
    if path is None:
        return
    if path.exists() and not force:
        raise Invalid(
            f"{path} exists already.",
            code="file-exists",
            action="Name another file, or add --force to overwrite it.",
            path=str(path),
        )
    if not path.absolute().parent.is_dir():
        raise NotFound(
            f"The directory {path.absolute().parent} does not exist.",
            code="directory-not-found",
            action="Create it, or name another file.",
            path=str(path.absolute().parent),
        )


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is not of the form NAME=VALUE")
    return name, value
