"""A database of a base, below the runs of an image: the files of a snapshot, or a directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class BaseFiles:
    """A base database, file by file.

    Attributes:
        files: name in the database's directory → SHA-256, by which the file is found.
    """

    segment: int | None
    files: Mapping[str, str]


@dataclass(frozen=True)
class BaseDirectory:
    """A base database in a directory visible to the builder: closed, and not opened until the image is built.

    Its files are linked and never written to.

    Attributes:
        starts: by changelog partition the offset that the runs begin at; the build fails if the database ends
            elsewhere.
    """

    segment: int | None
    path: str
    starts: Mapping[TopicPartition, int]
