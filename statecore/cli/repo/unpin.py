"""``statecore repo unpin``: remove the pin of a snapshot."""

from __future__ import annotations

import argparse

from statecore.cli.output import Output
from statecore.cli.repo.options import add_snapshot
from statecore.cli.repo.pin import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_snapshot(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.pins import unpin

    application = ApplicationRepository.open(arguments.repository, arguments.application_id)
    show(application, unpin(application, arguments.snapshot), output)
    return 0
