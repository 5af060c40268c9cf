"""Diagnosis of state directories, as a job."""
