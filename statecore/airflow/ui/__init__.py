"""Pages of the Airflow UI: state stores, and progress."""
