"""``statecore info``: list restores and snapshots with age, place and user, without Airflow."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.cli.output import Output, print_line, print_table, time_ago
from statecore.cli.repository_tables import list_published
from statecore.cli.request_options import path_of
from statecore.errors import Invalid, NotFound, StatecoreError, kind_and_code, missing_option
from statecore.system_errors import system_error
from statecore.words import format_bytes, note_line, number_of, shortened_list

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.jobs.attempt import Attempt
    from statecore.jobs.fetch.report import FetchReport
    from statecore.jobs.history.directory_changes import Changes, Fetches, UnfinishedChange
    from statecore.jobs.history.instance_history import Restores
    from statecore.jobs.history.report_head import ReportHead
    from statecore.jobs.history.report_index import InstanceReports, ReportIndex
    from statecore.jobs.history.restored_store import RestoredStore
    from statecore.jobs.history.unfinished_restores import UnfinishedRestore
    from statecore.standby.promote.report import PromoteReport

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=path_of,
        metavar="DIR",
        help="the applications' state.dir (default: STATECORE_STATE_DIR, else every one in the reports)",
    )
    parser.add_argument("--application-id", metavar="ID", help="only this application (default: all)")
    parser.add_argument(
        "--reports",
        type=path_of,
        metavar="DIR",
        help="directory of Airflow's reports (default: STATECORE_REPORTS, or $AIRFLOW_HOME/statecore/reports)",
    )
    parser.add_argument(
        "--repository",
        metavar="URL",
        help="also show the snapshots of this repository: s3://bucket/prefix, or file:///path (default: none)",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.jobs.history.report_index import ReportIndex, reports_directory

    state_dir = arguments.state_dir or os.environ.get("STATECORE_STATE_DIR")
    index = ReportIndex(arguments.reports or reports_directory(os.environ), keep=False)
    try:
        seen = index.directory.is_dir()
        index.names()
    except OSError as error:
        if arguments.reports or not (state_dir or arguments.repository):
            raise _unreadable(index.directory, error) from error
        output.say(f"The reports in {index.directory} are skipped: {error.strerror}.")
        seen, index = False, ReportIndex(Path(os.devnull), keep=False)
    if arguments.reports and not seen:
        raise NotFound(
            f"The directory {index.directory} does not exist.",
            code="directory-not-found",
            action="Name the directory of the reports, or leave out --reports.",
            path=str(index.directory),
        )
    wanted = arguments.application_id
    try:
        found = _below(Path(state_dir), wanted, index) if state_dir else _reported(wanted, index)
    except (Invalid, NotFound):
        if not arguments.repository or state_dir or arguments.reports:
            raise
        found = []
    if state_dir and wanted is None:
        output.say_skipped(Path(state_dir))
    if not output.json:
        show(found)  # before the repository is read, which may take a while
    published = list_published(arguments.repository, wanted) if arguments.repository else None
    if published is not None and not found:
        published.ensure_some()
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "host": socket.gethostname(),
            "reports": str(index.directory) if seen else None,
            "applications": [_document(one) for one in found],
            "repository": None if published is None else published.to_json(),
        }
    )
    if published is None:
        return 0
    if not output.json:
        published.show()
    return published.exit_code


def _document(one: Restores) -> dict[str, Any]:
    promotion = _last_promotion(one)
    return {**one.to_json(), "last_promotion": promotion.to_json() if promotion else None}


def _last_promotion(one: Restores) -> PromoteReport | None:
    """The last promotion of standby tasks into a directory: ``jobs/history`` may not know of them."""
    from statecore.standby.promote.report import PROMOTE_REPORT, PROMOTE_SUFFIX
    from statecore.statedir.state_directory import StateDirectory
    from statecore.statedir.work_directory import PLANS

    if not one.was_read:
        return None
    work = StateDirectory(Path(one.instance.state_dir), one.instance.application_id).work_path
    reports = []
    for file in (work / PLANS).glob(f"*{PROMOTE_SUFFIX}"):
        with suppress(OSError, Invalid):  # deleted meanwhile, or of another release
            reports.append(PROMOTE_REPORT.decode(file.read_bytes()))
    return max(reports, key=lambda report: report.finished, default=None)


def _unreadable(directory: Path, error: OSError) -> StatecoreError:
    return system_error(
        error,
        f"The reports in {directory} cannot be read",
        action="Run as a user that may read them, or give the application's --state-dir.",
        reports=str(directory),
    )


def _below(state_dir: Path, wanted: str | None, index: ReportIndex) -> list[Restores]:
    """Every application of a state directory, or the one that is named."""
    from statecore.jobs.history.instance_history import directories, read_history
    from statecore.statedir.store_places import application_directory, applications, no_application_error

    names = [wanted] if wanted is not None else sorted({*applications(state_dir), *directories(state_dir)})
    if not names:
        raise no_application_error(state_dir)
    # Missing directories are refused before any report is read.
    there = [application_directory(state_dir, name) for name in names]
    here = (socket.gethostname(), os.path.realpath(state_dir))
    return [
        read_history(
            directory, [one for one in _instances(index, directory.application_id) if one.instance[1:] == here]
        )
        for directory in there
    ]


def _reported(wanted: str | None, index: ReportIndex) -> list[Restores]:
    """Every instance in the reports; directories on this host are inspected too."""
    from statecore.jobs.history.instance_history import from_reports, read_history
    from statecore.statedir.state_directory import StateDirectory

    if not index.directory.is_dir():
        raise missing_option(
            "No state directory was named, and there is no directory of reports.",
            "Give the application's --state-dir, or --reports.",
            "state_dir",
        )
    found = []
    for one in _instances(index, wanted):
        directory = StateDirectory(Path(one.instance.state_dir), one.instance.application_id)
        here = one.instance.host == socket.gethostname() and bool(one.instance.state_dir)
        mine = here and directory.path.is_dir()
        try:
            found.append(read_history(directory, [one]) if mine else from_reports(one))
        except Invalid as error:  # another user's directory: its reports and the others are still shown
            found.append(replace(from_reports(one), problems=(str(error),)))
    if not found:
        what = f" of the application {wanted}" if wanted else ""
        raise NotFound(
            f"{index.directory} has no report{what}.",
            code="reports-not-found",
            action="Give the application's --state-dir.",
            reports=str(index.directory),
        )
    return found


def _instances(index: ReportIndex, application_id: str | None) -> list[InstanceReports]:
    from statecore.jobs.history.report_index import directory_name

    names = index.names() if application_id is None else [directory_name(application_id)]
    return [
        one
        for name in names
        for one in index.application(name).instances
        if application_id in (None, one.instance.application_id)
    ]


def show(found: Iterable[Restores], console: Console | None = None) -> None:
    from statecore.cli.output import result_console

    console = console or result_console()
    for one in found:
        where = f" on {one.instance.host}" if one.instance.host else ""
        in_directory = f" in {one.instance.state_dir}" if one.instance.state_dir else ", published"
        console.print(f"{one.instance.application_id}{where}{in_directory}", style="bold", markup=False)
        for line in _holder(one) if one.instance.state_dir else ():
            print_line(console, line)
        if one.standby_tasks:
            print_line(console, f"copies of statecore standby: {shortened_list(one.standby_tasks)}")
        if one.later is not None:
            _show_later(console, one.later)
        for unfinished in one.unfinished:
            _show_unfinished(console, one, unfinished)
        for killed in one.changes.unfinished:
            _show_killed(console, killed)
        _show_last(console, one)
        _show_fetches(console, one.fetches)
        _show_changes(console, one.changes)
        _show_promotion(console, _last_promotion(one))
        for left in one.leftovers:
            print_line(console, f"in .statecore: {left.name}, {format_bytes(left.bytes)}: {left.meaning}")
        for problem in one.problems:
            print_line(console, f"problem: {problem}", "red")
        console.print()


def _show_later(console: Console, later: ReportHead) -> None:
    if later.error:
        print_line(console, f"the latest attempt failed {_when(later)}{_by(later)}", "bold red")
        print_line(console, _error(later), "red", 4)
    else:
        print_line(console, f"an attempt began {_when(later)}{_by(later)}; its end was not reported", "bold yellow")
    print_line(console, f"request {later.attempt.request_id or 'unknown'}", indent=4)


def _holder(one: Restores) -> list[str]:
    if not one.was_read:
        return ["known from reports only; the directory was not inspected"]
    if one.writer is not None:
        return [f"in use by {one.writer}, which has stores open and does not hold the lock"]
    if one.holder is None:
        return ["free: no process holds its lock"]
    restoring = any(unfinished.running for unfinished in one.unfinished)
    return [f"in use by {one.holder}" + (", which is the restore below" if restoring else "")]


def _show_last(console: Console, one: Restores) -> None:
    last, published = one.last_restored, one.last_published
    if published is not None:
        print_line(console, f"last snapshot {_when(published)}{_by(published)}", "bold")
        print_line(console, f"{published.snapshot} in {published.repository}", indent=4)
    if last is None:
        if one.instance.state_dir:
            print_line(console, "no finished restore")
        return
    _show_restore(console, "last restore", last)
    if one.before is not None:
        _show_restore(console, "the restore before it", one.before)
    _show_stores(console, one.stores)


def _show_restore(console: Console, label: str, last: ReportHead) -> None:
    print_line(console, f"{label} {_when(last)}, {last.seconds:,.1f} s{_by(last)}", "bold")
    request = f"request {last.attempt.request_id or 'unknown'}"
    plan = f"plan {last.plan_id}" if last.plan_id else ""
    print_line(console, ", ".join(part for part in (request, plan, last.processing_guarantee) if part), indent=4)
    stores = f"{last.stores} store{'s' if last.stores != 1 else ''}"
    print_line(
        console,
        f"{last.partitions} store partition{'s' if last.partitions != 1 else ''} of {stores}"
        + (f", {last.rows:,} rows" if last.rows >= 0 else "")
        if last.partitions
        else "nothing to do",
        indent=4,
    )
    for note in last.notes:
        print_line(console, note_line(note), indent=4)


def _show_fetches(console: Console, fetches: Fetches) -> None:
    if (begun := fetches.unfinished) is not None:
        print_line(console, f"unfinished fetch, started {_when_of(begun.started)}{_made_by(begun)}", "bold yellow")
        print_line(console, f"it had started to place stores of {begun.snapshot} in {begun.repository}", indent=4)
        print_line(console, f"resume it with the same command and --request-id {begun.request_id}", indent=4)
    if (last := fetches.last) is None:
        return
    print_line(console, f"last fetch {_when_of(last.finished)}, {last.seconds:,.1f} s{_made_by(last)}", "bold")
    print_line(console, f"snapshot {last.snapshot} in {last.repository}", indent=4)
    tasks = sorted({store.task for store in last.stores})
    kept = f"; kept: {', '.join(last.kept)}" if last.kept else ""
    print_line(
        console,
        f"{number_of(len(last.stores), 'store')} of {', '.join(tasks)}, "
        f"{format_bytes(last.downloaded_bytes)} downloaded, {format_bytes(last.at_hand_bytes)} were here already{kept}",
        indent=4,
    )
    for note in last.notes:
        print_line(console, note_line(note), indent=4)


def _show_changes(console: Console, changes: Changes) -> None:
    if (done := changes.migration) is not None:
        changed = sum(task.is_changed for task in done.tasks)
        print_line(console, f"last migration {_when_of(done.finished)}, {done.seconds:,.1f} s{_made_by(done)}", "bold")
        print_line(
            console,
            f"to {done.to}: {done.outcome}, {changed} of {number_of(len(done.tasks), 'task')} changed",
            indent=4,
        )
        _show_kept(console, done.kept)
    if (repair := changes.repair) is not None:
        when = f"{_when_of(repair.finished)}, {repair.seconds:,.1f} s{_made_by(repair)}"
        print_line(console, f"last repair {when}", "bold")
        steps = [f"{number_of(len(repair.repaired), 'task')} repaired"] if repair.repaired else []
        steps += [f"{', '.join(one.stores)} rebuilt in {', '.join(one.tasks)}" for one in repair.rebuilt]
        result = "; ".join(steps) or str(repair.outcome)
        print_line(console, f"{result}; findings left: {len(repair.remaining) or 'none'}", indent=4)
        for kept in (repair.kept, *(one.kept for one in repair.rebuilt)):
            _show_kept(console, kept)


def _show_promotion(console: Console, done: PromoteReport | None) -> None:
    from statecore.standby.promote.report import PromoteVerdict

    if done is None:
        return
    promoted = sum(one.verdict is PromoteVerdict.PROMOTED for one in done.tasks)
    print_line(console, f"last promotion {_when_of(done.finished)}, {done.seconds:,.1f} s{_made_by(done)}", "bold")
    tasks = number_of(len(done.tasks), "task")
    print_line(console, f"from {done.standby_dir}: {promoted} of {tasks} promoted", indent=4)
    _show_kept(console, done.kept)


def _show_kept(console: Console, kept: str) -> None:
    if kept:
        print_line(console, f"replaced files are kept in {kept} for a week", indent=4)


def _show_killed(console: Console, killed: UnfinishedChange) -> None:
    state = f"{killed.job} running" if killed.running else f"unfinished {killed.job}"
    print_line(console, f"{state}, started {_when_of(killed.attempt.started)}{_made_by(killed.attempt)}", "bold yellow")
    if not killed.running:
        print_line(console, f"resume it with: {shlex.join(['statecore', *killed.words])}", indent=4)


def _made_by(report: Attempt | FetchReport) -> str:
    return f", by {report.user} on {report.host} with statecore {report.release}" if report.user else ""


def _show_stores(console: Console, stores: Iterable[RestoredStore]) -> None:
    print_table(
        console,
        "",
        ("store", "kind", "partitions", "rows", "offset", "tail left", "restored", "digest"),
        [
            (
                one.store,
                one.kind,
                str(one.partitions),
                f"{one.rows:,}" if one.rows >= 0 else "not counted",
                _offsets(one),
                f"{one.tail_left:,}",
                time_ago(one.newest) + (f", some {time_ago(one.oldest)}" if one.oldest[:19] != one.newest[:19] else ""),
                one.digest[:12],
            )
            for one in stores
        ],
        left={"store", "kind", "restored", "digest"},
        spare=("digest", "kind", "partitions"),
        indent=4,
    )


def resume_commands(history: Restores) -> list[str]:
    """The commands that resume interrupted jobs of a directory, as far as its files name them."""
    restores = (_resume_command(history, one) for one in history.unfinished if one.words and not one.running)
    changes = (shlex.join(["statecore", *one.words]) for one in history.changes.unfinished if not one.running)
    return [*restores, *changes]


def _resume_command(history: Restores, unfinished: UnfinishedRestore) -> str:
    command, *options = unfinished.words
    spec = [] if "--spec" in options else ["--spec", "STORES.YAML"]
    words = ["statecore", command, *spec, "--state-dir", history.instance.state_dir, *options]
    return shlex.join([*words, "--request-id", unfinished.request_id])


def _show_unfinished(console: Console, one: Restores, unfinished: UnfinishedRestore) -> None:
    attempt = unfinished.attempt
    command, *_ = unfinished.words or ("placement",)
    state = f"{command} running" if unfinished.running else f"unfinished {command}"
    since = f", started {_when(attempt)}{_by(attempt)}" if attempt else ""
    print_line(console, f"{state}{since}", "bold yellow")
    done = f", {unfinished.done} of {unfinished.total} {unfinished.unit}" if unfinished.unit else ""
    planned = f"; planned {time_ago(unfinished.planned)}" if unfinished.planned else ""
    print_line(console, f"it has reached the phase {unfinished.reached}{done}{planned}", indent=4)
    if attempt is not None and attempt.error:
        print_line(console, _error(attempt), "red", 4)
    if not unfinished.words:
        print_line(console, "the next job completes or reverts it first; run the interrupted command again", indent=4)
    elif not unfinished.running:
        print_line(console, f"resume it with: {_resume_command(one, unfinished)}", indent=4)
    else:
        print_line(console, f"request {unfinished.request_id}", indent=4)


def _offsets(one: RestoredStore) -> str:
    low, high = min(one.offsets, default=-1), max(one.offsets, default=-1)
    known = [] if low < 0 else [str(low) if low == high else f"{low} to {high}"]
    return ", ".join([*known, *([f"{one.unknown} unknown"] if one.unknown else [])])


def _error(head: ReportHead) -> str:
    what = head.error.get("what") or ""
    between = "\n" if "\n" in what else " "  # a message of several lines is followed by a line of its own
    return between.join(filter(None, [f"{kind_and_code(head.error)}: {what.strip()}", head.error.get("action")]))


def _by(head: ReportHead) -> str:
    return _made_by(head.attempt)


def _when(head: ReportHead) -> str:
    return _when_of(head.when)


def _when_of(when: str) -> str:
    return f"{time_ago(when)} ({when[:19].replace('T', ' ')}Z)"
