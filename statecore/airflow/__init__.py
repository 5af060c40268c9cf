"""Operators, hooks, assets and the UI for Airflow. Only here Airflow is imported."""
