"""Entry point for Airflow's plugin manager; the plugin is in ``statecore.airflow.plugin``.

Airflow imports every file in this folder as a top-level module: put nothing else here.
"""

from __future__ import annotations

from statecore.airflow.plugin import StatecorePlugin

__all__ = ["StatecorePlugin"]
