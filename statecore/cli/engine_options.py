"""The options of a command that say which engine does the work of its job, and the engine that they choose."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from statecore.errors import Invalid
from statecore.extras import require
from statecore.spec.spark_settings import properties

if TYPE_CHECKING:
    from statecore.jobs.engine import Engine


def add_engine_options(parser: argparse.ArgumentParser, default: str = "spark", who: str = "who does the work") -> None:
    """Declare the options, under a heading of their own.

    Args:
        parser: where.
        default: the engine that is taken where none is named.
        who: what the engine does, for the help.
    """
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine",
        choices=("spark", "processes"),
        help=f"{who}: spark, or processes on this machine, without Java (default: {default})",
    )
    engine.add_argument("--processes", type=_processes, metavar="N", help="how many processes (default: one a core)")
    engine.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    engine.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of Spark's, such as spark.executor.memory=2g; repeatable, wins over the spec's spark section",
    )
    parser.set_defaults(default_engine=default)


def engine_options_given(arguments: argparse.Namespace) -> list[str]:
    """The options of an engine that a command line has, for commands that mostly do without one."""
    names = ("engine", "processes", "master", "spark_conf")
    return [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) not in (None, [])]


def engine_of(arguments: argparse.Namespace) -> Engine:
    """The engine that was chosen. A request that only plans (``plan_only``) needs no package of Spark's.

    Raises:
        Invalid: an option of the other one was given, or its packages are missing.
    """
    conf = properties(arguments.spark_conf)
    if (arguments.engine or arguments.default_engine) == "processes":
        if arguments.master or conf:
            raise Invalid(
                "--master and --spark-conf are Spark's, and --engine processes does without it.",
                code="options-conflict",
                action="Leave them out, or choose --engine spark.",
                options=["engine", "master" if arguments.master else "spark_conf"],
            )
        require("pipeline")
        from statecore.jobs.processes import ProcessEngine

        return ProcessEngine(arguments.processes)
    if arguments.processes is not None:
        raise Invalid(
            "--processes is for --engine processes; Spark's master says how many tasks it runs at once.",
            code="options-conflict",
            action="Choose --engine processes, or a master such as local[4].",
            options=["engine", "processes"],
        )
    if not arguments.plan_only:
        require("spark")
    from statecore.spark.engine import SparkEngine

    return SparkEngine(arguments.master or "local[*]", conf)


def _processes(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; at least one does the work")
    return int(text)
