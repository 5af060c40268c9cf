"""What a job works on, opened once from its request: spec, state directory, repository, brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from statecore.errors import missing_option
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.fields.declaration import Request
from statecore.objectstore.base import DEFAULT_RETRIES
from statecore.progress import NullProgress, Progress
from statecore.spec.model import ApplicationSpec
from statecore.statedir.file_ownership import parse_owner
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import application_directory, check_application

if TYPE_CHECKING:  # a diagnosis may need neither
    from statecore.changelog.cluster import Cluster
    from statecore.repository.application_repository import ApplicationRepository

RequestT = TypeVar("RequestT")
OtherT = TypeVar("OtherT")

BROKER_TIMEOUT = 30.0
"""Seconds, for requests without a timeout of their own."""


def ignore(line: str) -> None:
    """Ignore a line for the operator."""


@dataclass(frozen=True)
class JobContext(Generic[RequestT]):
    """What a job works on. Each part is opened when it is first used; one that the request does not name is an error.

    Attributes:
        application_id: Kafka Streams' ``application.id``; empty for a request that concerns all applications.
        declared: the spec of the request; ``None`` if it has none.
        connect: makes a client of the brokers, in place of :class:`Cluster`.
        shared_repository: an opened repository, used instead of opening one.
        shared_cluster: connected brokers, used instead of connecting.
        shared_directory: a directory whose lock the caller holds.
    """

    request: RequestT
    application_id: str
    declared: ApplicationSpec | None
    _: KW_ONLY
    progress: Progress
    faults: FaultPoints
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    connect: Callable[..., Cluster] | None = None
    shared_repository: ApplicationRepository | None = None
    shared_cluster: Cluster | None = None
    shared_directory: StateDirectory | None = None

    @classmethod
    def open(
        cls,
        request: RequestT,
        progress: Progress | None = None,
        *,
        faults: FaultPoints | None = None,
        say: Callable[[str], None] | None = None,
        spec: ApplicationSpec | None = None,
        **shared: Any,
    ) -> JobContext[RequestT]:
        """Read the spec of a request, and check that it is that of the application.

        Args:
            request: any request of a job.
            spec: the spec, if the caller has read it.
            progress, faults, say: of the caller; by default nothing is reported, and no fault is injected.
            shared: ``clock``, ``connect``, and the ``shared_…`` attributes.

        Raises:
            Invalid, NotFound: the spec is wrong, or that of another application; the owner of files is unknown.
        """
        declared = spec or getattr(request, "declared_spec", None)
        named = getattr(request, "application_id", None)
        if named is not None:
            check_application(declared, named)
        if (owner := getattr(request, "owner", None)) is not None:
            parse_owner(owner)  # refused before a plan is shown
        application_id = named or ("" if declared is None else declared.application_id)
        return cls(
            request,
            application_id,
            declared,
            progress=progress or NullProgress(),
            faults=faults or NO_FAULTS,
            say=say or ignore,
            **shared,
        )

    def with_request(self, request: OtherT) -> JobContext[OtherT]:
        """The same for another request of the application, with what is open already."""
        same: Any = self
        opened = vars(self).get("repository", self.shared_repository)
        context: JobContext[OtherT] = replace(same, request=request, shared_repository=opened)
        return context

    @property
    def spec(self) -> ApplicationSpec:
        return self.declared or ApplicationSpec.undeclared(self.application_id)

    @property
    def state_dir(self) -> str:
        """Kafka Streams' ``state.dir``; empty if the request names none."""
        return getattr(self.request, "state_dir", "")

    @property
    def has_repository(self) -> bool:
        return bool(getattr(self.request, "repository", None))

    @cached_property
    def repository(self) -> ApplicationRepository:
        """The application's part of the repository."""
        if self.shared_repository is not None:
            return self.shared_repository
        from statecore.repository.application_repository import ApplicationRepository

        request: Any = self.request
        retries = getattr(request, "retries", DEFAULT_RETRIES)
        return ApplicationRepository.open(request.repository, self.application_id, retries)

    @cached_property
    def directory(self) -> StateDirectory:
        """The application's directory, which need not exist."""
        owner = getattr(self.request, "owner", None)
        return self.shared_directory or StateDirectory(Path(self.state_dir), self.application_id, owner)

    def existing_directory(self, application_id: str = "") -> StateDirectory:
        """The directory of an application (the context's). Raises ``NotFound``: it has none."""
        found = application_directory(Path(self.state_dir), application_id or self.application_id)
        return StateDirectory(found.state_dir, found.application_id, getattr(self.request, "owner", None))

    @contextmanager
    def locked(self, fault_point: str) -> Iterator[None]:
        """Hold the lock of the directory, unless the caller does; passes the fault point once it is held."""
        note = self.directory.owner_note()  # before the lock, which creates the directory and so decides its owner
        if self.shared_directory is not None:
            self.faults.reach(fault_point)
            self.say(note)
            yield
            return
        with self.directory.lock():
            self.faults.reach(fault_point)
            self.say(note)
            yield

    @property
    def bootstrap_servers(self) -> str:
        """Brokers of the request, or of the spec; empty without either."""
        return getattr(self.request, "bootstrap_servers", None) or (
            "" if self.declared is None else self.declared.bootstrap_servers
        )

    @property
    def kafka(self) -> Mapping[str, Any]:
        return {} if self.declared is None else self.declared.kafka

    @property
    def timeout(self) -> float:
        """Seconds after which a broker counts as unreachable."""
        return getattr(self.request, "timeout", BROKER_TIMEOUT)

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        if self.shared_cluster is not None:
            yield self.shared_cluster
            return
        from statecore.changelog.cluster import Cluster

        connect = self.connect or Cluster
        with connect(self.bootstrap_servers, self.kafka, timeout=self.timeout) as cluster:
            yield cluster


def spec_of(request: Request) -> ApplicationSpec:
    """The spec of a request that must have one."""
    found = request.declared_spec
    if found is None:
        raise missing_option("The request has no spec.", "Give the spec (--spec).", "spec")
    return found
