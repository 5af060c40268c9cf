"""Pages of the Airflow UI: *State stores* and *Statecore progress*."""
