"""Whether a snapshot is of the cluster that a job asks.

Two clusters (test and production, or one before and after a move) may each have an application of one id. Offsets of
one mean nothing in the other, so a repository has the snapshots of one of them. The id of a cluster is KIP-78's, which
every broker since Kafka 0.10.1 tells with its metadata.
"""

from __future__ import annotations

from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Manifest


def is_of_other_cluster(manifest: Manifest | None, cluster_id: str) -> bool:
    """Whether a snapshot is known to be of another cluster; ``cluster_id`` is empty where that is unknown."""
    return manifest is not None and "" not in (manifest.cluster_id, cluster_id) and manifest.cluster_id != cluster_id


def publication_refused(app_repository: ApplicationRepository, newest: Manifest, cluster_id: str) -> Invalid:
    """The error for a job that would replace the snapshots of another cluster."""
    return _changed(
        app_repository,
        newest,
        cluster_id,
        f"Nothing was published: the newest snapshot of {app_repository.application_id} in {app_repository.url}, "
        f"{newest.snapshot}, is of the cluster {newest.cluster_id}, and these brokers are of the cluster {cluster_id}.",
        "Check the brokers (bootstrap_servers). If each cluster has an application of this id, give each a repository "
        "of its own. If the application has moved to this cluster, publish all of it: statecore restore "
        f"--repository {app_repository.url} --accept-cluster {cluster_id}",
    )


def partial_move_refused(app_repository: ApplicationRepository, newest: Manifest, cluster_id: str) -> Invalid:
    """The error for a job that would put a part of an application beside the rest, of another cluster."""
    return _changed(
        app_repository,
        newest,
        cluster_id,
        f"Nothing was published: this restore has only a part of {app_repository.application_id}, and the other stores "
        f"of the newest snapshot, {newest.snapshot}, are of the cluster {newest.cluster_id}, not {cluster_id}.",
        "Restore the whole application into the repository: without --store, --partition and --state-dir.",
    )


def fetch_refused(app_repository: ApplicationRepository, found: Manifest, cluster_id: str) -> Invalid:
    """The error for a snapshot of another cluster than the brokers that its offsets are compared with."""
    return _changed(
        app_repository,
        found,
        cluster_id,
        f"The snapshot {found.snapshot} of {app_repository.application_id} in {app_repository.url} is of the cluster "
        f"{found.cluster_id}, and these brokers are of the cluster {cluster_id}: its offsets mean nothing there.",
        "Check the brokers (bootstrap_servers) and the repository. If the application has moved to this cluster, "
        f"publish it first: statecore restore --repository {app_repository.url} --accept-cluster {cluster_id}",
    )


def _changed(
    app_repository: ApplicationRepository, manifest: Manifest, cluster_id: str, what: str, action: str
) -> Invalid:
    return Invalid(
        what,
        code="cluster-changed",
        action=action,
        application_id=app_repository.application_id,
        repository=app_repository.url,
        snapshot=manifest.snapshot,
        expected=manifest.cluster_id,
        found=cluster_id,
    )
