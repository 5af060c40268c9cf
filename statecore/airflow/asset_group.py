"""Listener: puts the stores' assets into the group that they name.

An asset that a task adds to an alias at run time is made by Airflow 3.3 with the group ``asset``, whatever the task
said (``TaskInstance.register_asset_changes_in_db``), so the stores were scattered among all others. Airflow's API
server, which makes the asset, calls this after it has written the event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from statecore.airflow.assets import GROUP, SCHEME

if TYPE_CHECKING:
    from airflow.serialization.definitions.assets import SerializedAsset


@hookimpl
def on_asset_changed(asset: SerializedAsset) -> None:
    """Move an asset of ours to our group. Airflow logs what is raised here, and goes on."""
    if asset.group == GROUP or not asset.uri.startswith(SCHEME):
        return
    # Imported here: task processes load listeners too, and must not load Airflow's models.
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(
            update(AssetModel).where(AssetModel.name == asset.name, AssetModel.uri == asset.uri).values(group=GROUP)
        )
