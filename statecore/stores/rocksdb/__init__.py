"""RocksDB: the store of one directory, and everything that opens, reads, copies or locks one."""
