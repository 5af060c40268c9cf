"""The declared stores of an application: ``stores.yaml``."""
