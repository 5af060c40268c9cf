"""The atomic store: RocksDB with its offsets inside, and the interface every store implements."""
