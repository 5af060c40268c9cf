"""Compaction: runs of a snapshot merged, so that they stay few."""
