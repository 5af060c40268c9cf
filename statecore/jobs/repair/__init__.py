"""Repair of a state directory, as a job."""
