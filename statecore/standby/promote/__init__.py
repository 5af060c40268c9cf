"""Promotion: standby tasks take the place of the tasks of an application that is down."""
