"""``statecore advance``: advance a stopped application's stores to the end of their changelogs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options
from statecore.cli.output import Output
from statecore.cli.request_options import add_request_options
from statecore.cli.restore import run_and_show
from statecore.jobs.restore.request import AdvanceRequest

if TYPE_CHECKING:
    from statecore.jobs.planning.plan import ReadPlan
    from statecore.jobs.read_report import ReadReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, AdvanceRequest)
    add_engine_options(parser, default="processes")


def run(arguments: argparse.Namespace, output: Output) -> int:
    def job() -> Callable[..., ReadReport | ReadPlan]:
        from statecore.jobs.restore.advance import run_advance

        return run_advance

    return run_and_show(arguments, output, AdvanceRequest, job)
