"""Fetch: places stores of a repository snapshot into a state directory."""
