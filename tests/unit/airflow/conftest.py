"""Airflow's home is set when the tests are collected: before any of them imports Airflow."""

from __future__ import annotations

from tests.unit.airflow.home import settle

settle()
