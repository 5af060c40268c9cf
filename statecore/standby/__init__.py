"""Standby tasks of a process or a group of them: assignment, bootstrap, service, promotion."""
