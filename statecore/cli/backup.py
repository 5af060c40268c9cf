"""``statecore backup``: publish the stores of a state directory as a snapshot."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.backup.request import BackupRequest
from statecore.words import format_bytes, offset_list

if TYPE_CHECKING:
    from statecore.jobs.backup.report import BackupReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, BackupRequest)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.jobs.backup.run import run_backup
    from statecore.spec.reader import load_spec

    application_id = load_spec(arguments.spec_path).application_id
    request = request_of(BackupRequest, arguments)
    if not request.plan_only:
        output.set_request_id(request.request_id, is_retry=arguments.request_id is not None)
    report = output.run(run_backup, request, application_id=application_id)
    output.result(report, show)
    return 0


def show(report: BackupReport) -> None:
    from rich.text import Text

    from statecore.jobs.backup.report import BackupOutcome

    console = result_console()
    if report.stores:
        rows = []
        for store in report.stores:
            offset = "restored by Kafka Streams"
            if not store.restored_by_kafka_streams:
                offset = offset_list(store.offsets.values())
            counts = (store.databases, store.files, store.bytes, store.new_files, store.new_bytes)
            rows.append(
                (
                    *(store.task, store.store, store.kind),
                    *(f"{count:,}" for count in counts),
                    offset,
                    "" if store.tail < 0 else f"{store.tail:,}",
                )
            )
        print_table(
            console,
            f"{report.application_id} in {report.state_dir}",
            ("task", "store", "kind", "databases", "files", "bytes", "new files", "new bytes", "offset", "tail"),
            rows,
            left={"task", "store", "kind"},
            spare=("databases", "new files", "kind", "files"),
        )
    name = report.snapshot
    result = {
        BackupOutcome.PUBLISHED: f"published {name}: {format_bytes(report.bytes)}, of which "
        f"{format_bytes(report.put_bytes)} were uploaded",
        BackupOutcome.EARLIER: f"{name} was published by an earlier try of this request",
        BackupOutcome.UNCHANGED: f"nothing has changed since {name}; nothing was published",
        BackupOutcome.PLANNED: (
            f"would publish {report.files:,} files ({format_bytes(report.bytes)}); by name and size "
            f"{report.new_files:,} ({format_bytes(report.new_bytes)}) are new to the repository; nothing was published"
        ),
    }
    console.print(Text(f"{result[report.outcome]} ({report.seconds:.1f} s, {report.repository})"))
