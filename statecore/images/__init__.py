"""Runs (Arrow to SST files) and images (the RocksDB directory of one store of one task at one committed offset)."""
