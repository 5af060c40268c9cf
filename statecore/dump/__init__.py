"""Decoded rows of a store, as Arrow batches and as files."""
