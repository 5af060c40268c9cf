"""Restores one store from its changelog, by either changelog reader."""
