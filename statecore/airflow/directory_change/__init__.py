"""Dags that plan, have approved, and carry out changes of state directories."""
