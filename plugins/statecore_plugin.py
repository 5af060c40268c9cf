"""Lets Airflow find statecore's plugin. Everything is in ``statecore.airflow.plugin``.

Airflow imports every file in this folder under its bare name: nothing else belongs here.
"""

from __future__ import annotations

from statecore.airflow.plugin import StatecorePlugin

__all__ = ["StatecorePlugin"]
