"""Restoration of a store from its changelog, by either reader of changelogs."""
