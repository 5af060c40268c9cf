"""Operators, hooks, assets and UI pages for Airflow; the only package that imports Airflow."""
