"""Fetch: from a repository into a state directory."""
