"""Stores that keep rows and the changelog offset they stand at together, and the interface every store implements.

A user of the library imports all of it from :mod:`statecore`. It lies here::

    base         StateStore: what every store does; commit_requested() for the stores of a task
    rocksdb      RocksDBStore: the store of Kafka Streams' own directories
    in_memory    InMemoryStore
    file         FileStore: keeps no offsets
    settings     StoreSettings, Durability
    transaction  Transaction, made by StateStore.transaction()
    query        QueryView, made by StateStore.query_view(): reads from other threads
    write_buffer_store  WriteBufferStore: base of other stores, with staging, transactions and views
"""
