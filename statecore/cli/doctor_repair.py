"""``statecore doctor --repair``: mend what was found. Without ``--apply`` the plan is printed, and nothing is changed.

The exit code is that of the worst finding that is left: of a plan, that it does not mend.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, number_of, print_line, result_console, some_of

if TYPE_CHECKING:
    from statecore.jobs.repair_report import RepairReport

_ONLY_OF_REPAIRS = ("apply", "approved", "repository", "owner", "request_id")


def add_repair_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a repair."""
    group = parser.add_argument_group("repair")
    group.add_argument("--repair", action="store_true", help="show what would mend the findings; nothing is changed")
    group.add_argument("--apply", action="store_true", default=None, help="with --repair: do it")
    group.add_argument("--approved", metavar="ID", help="only the plan with this id, which was looked at")
    group.add_argument(
        "--repository", metavar="URL", help="rebuild stores from its newest sound snapshot, where that is cheaper"
    )
    group.add_argument("--owner", metavar="USER[:GROUP]", help="whom files will belong to (default: as they do)")
    group.add_argument("--request-id", metavar="ID", help="name of this repair; a retry under it goes on")
    add_engine_options(parser, "processes", "who rebuilds stores")


def refuse_without_repair(arguments: argparse.Namespace) -> None:
    """Refuse options that mean nothing where nothing is repaired. Raises ``Invalid``."""
    from statecore.errors import Invalid

    given = [name for name in _ONLY_OF_REPAIRS if getattr(arguments, name) is not None]
    if given:
        raise Invalid(f"--{given[0].replace('_', '-')} is for --repair.", action="Add --repair, or leave it out.")


def run_repair(arguments: argparse.Namespace, application_id: str | None, output: Output) -> int:
    """Repair, or plan, and show the outcome."""
    from statecore.errors import Invalid
    from statecore.faults import fault_points_from_environment
    from statecore.jobs import repair
    from statecore.jobs.repair_request import RepairRequest
    from statecore.spec.model import ProcessingGuarantee
    from statecore.telemetry import metered

    if application_id is None:
        raise Invalid("A repair is of one application.", action="Name it (--application-id), or its --spec.")
    if arguments.release:
        raise Invalid(
            "A repair is for the newest release.",
            action="Leave --for out; statecore migrate converts for other releases.",
        )
    guarantee = arguments.processing_guarantee
    given = {name: getattr(arguments, name) for name in _ONLY_OF_REPAIRS if getattr(arguments, name) is not None}
    request = RepairRequest(
        application_id=application_id,
        state_dir=str(arguments.state_dir),
        tasks=tuple(arguments.task),
        stores=tuple(arguments.store),
        scan=arguments.scan,
        offline=arguments.offline,
        cleanup_max_age_ms=arguments.cleanup_max_age,
        spec_path=None if arguments.spec is None else str(arguments.spec),
        processing_guarantee=None if guarantee is None else ProcessingGuarantee(guarantee),
        **given,
    )
    arguments.plan_only = not request.apply
    engine = engine_of(arguments)
    if request.apply:
        output.go_on_with(request.request_id, is_retry=arguments.request_id is not None)
    faults = fault_points_from_environment()
    with metered(output.progress, {"application-id": application_id}, output.say) as progress:
        report = repair.run_repair(request, engine, progress, faults=faults, say=output.say)
    output.document(report.to_json())
    if not output.json:
        show(report)
    return report.exit_code


def show(report: RepairReport) -> None:
    """What is mended and rebuilt, then what is left."""
    from statecore.jobs.repair_report import Outcome

    console = result_console()
    done = report.outcome is Outcome.REPAIRED
    console.print(f"{report.application_id} in {report.state_dir}", style="bold", markup=False)
    print_line(console, f"{number_of(len(report.found), 'finding')}, notes among them", indent=0)
    steps: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for task in report.mended:
        for step in task.steps:
            steps.setdefault((step, task.codes), []).append(task.task)
    for (step, codes), tasks in steps.items():
        print_line(console, f"{'mended' if done else 'would mend'} {some_of(tasks)}: {step} [{', '.join(codes)}]")
    for one in report.rebuilt:
        rows = "" if one.rows is None else f": {one.rows:,} rows in {one.seconds:.1f} s"
        rows += f", upon {', '.join(one.parents)}" if one.parents else ""
        what = f"{', '.join(one.stores)} in {some_of(one.tasks) if one.tasks else 'all tasks'}"
        print_line(console, f"{'rebuilt' if done else 'would rebuild'} {what}{rows} [{', '.join(one.codes)}]")
    for finding in report.left:
        where = "/".join(str(finding[name]) for name in ("task", "store") if finding.get(name))
        words = f"{where}: " if where else ""
        print_line(console, f"{'left' if done else 'not mended'}: {words}{finding['what']} [{finding['code']}]")
        print_line(console, f"Do: {finding['remedy']}", indent=4)
    for note in report.notes:
        print_line(console, f"note: {note}")
    kept = f"; what was replaced lies in {report.kept} for a week" if report.kept else ""
    said = {
        Outcome.PLANNED: f"plan {report.plan_id}; nothing was changed. Do it with --repair --apply",
        Outcome.REPAIRED: f"repaired in {report.seconds:.1f} s{kept}",
        Outcome.UNCHANGED: "nothing that a repair could mend",
    }
    print_line(console, said[report.outcome], indent=0)
