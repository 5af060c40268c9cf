"""Dags that plan changes of state directories, have a person approve the plans, and apply them."""
