"""Options that the commands of ``statecore repo`` share."""

from __future__ import annotations

import argparse


def add_repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository", required=True, metavar="URL", help="URL of the repository: s3://bucket/prefix, or file:///path"
    )


def add_application(parser: argparse.ArgumentParser) -> None:
    add_repository(parser)
    parser.add_argument("--application-id", required=True, metavar="ID", help="Kafka Streams' application.id")


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    """Declare a snapshot of an application."""
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="id of the snapshot, or newest")
    add_application(parser)
