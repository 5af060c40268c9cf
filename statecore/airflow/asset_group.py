"""Airflow listener that moves assets of statecore to the group ``statecore``.

Airflow 3.3 creates an asset that a task adds to an alias at run time with the group ``asset``, whatever group the task
gave (``TaskInstance.register_asset_changes_in_db``). The API server, which creates the asset, calls this listener after
it has written the event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from statecore.airflow.assets import GROUP, SCHEME

if TYPE_CHECKING:
    from airflow.serialization.definitions.assets import SerializedAsset


@hookimpl
def on_asset_changed(asset: SerializedAsset) -> None:
    """Move an asset of statecore to its group; Airflow logs exceptions of listeners and continues."""
    if asset.group == GROUP or not asset.uri.startswith(SCHEME):
        return
    # Imported here, because task processes load listeners too and must not load Airflow's models.
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(
            update(AssetModel).where(AssetModel.name == asset.name, AssetModel.uri == asset.uri).values(group=GROUP)
        )
