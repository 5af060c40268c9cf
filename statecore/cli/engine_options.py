"""Options of a command that choose the engine of its job, and the engine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.errors import options_conflict
from statecore.extras import require
from statecore.jobs.fields.types import Whole
from statecore.spec.spark_settings import parse_properties

if TYPE_CHECKING:
    from statecore.jobs.engine.protocol import Engine


def add_engine_options(parser: argparse.ArgumentParser, default: str = "spark", who: str = "engine of the job") -> None:
    """Declare the options in an argument group of their own."""
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine",
        choices=("spark", "processes"),
        help=f"{who}: spark, or processes on this machine, without Java (default: {default})",
    )
    engine.add_argument("--processes", type=_processes, metavar="N", help="number of processes (default: one per core)")
    engine.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    engine.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Spark property, such as spark.executor.memory=2g, which overrides the spec's spark section; repeat the "
        "option for each",
    )
    parser.set_defaults(default_engine=default)


def engine_of(arguments: argparse.Namespace) -> Engine:
    """The chosen engine. A request with ``plan_only`` does not need the Spark packages."""
    conf = parse_properties(arguments.spark_conf)
    if (arguments.engine or arguments.default_engine) == "processes":
        if arguments.master or conf:
            raise options_conflict(
                "--master and --spark-conf cannot be used with --engine processes.",
                "Leave them out, or use --engine spark.",
                ["engine", "master" if arguments.master else "spark_conf"],
            )
        require("pipeline")
        from statecore.jobs.engine.processes import ProcessEngine

        return ProcessEngine(arguments.processes)
    if arguments.processes is not None:
        raise options_conflict(
            "--processes needs --engine processes; with Spark the master sets the number of concurrent tasks.",
            "Use --engine processes, or a master such as local[4].",
            ["engine", "processes"],
        )
    if not arguments.plan_only:
        require("spark")
    from statecore.spark.engine import SparkEngine

    return SparkEngine(arguments.master or "local[*]", conf)


def _processes(text: str) -> int:
    try:
        return Whole(words="a number of processes", digits=4).from_word(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
