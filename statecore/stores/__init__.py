"""State stores that keep rows together with their changelog offset, and the interface every store implements.

Users of the library import these from :mod:`statecore`::

    base         StateStore: what every store does; commit_requested() for the stores of a task
    rocksdb      RocksDBStore: the store of Kafka Streams' own directories
    in_memory    InMemoryStore
    settings     StoreSettings, Durability
    transaction  Transaction, created by StateStore.transaction()
    query        QueryView, created by StateStore.query_view(): reads from other threads
    write_buffer_store  WriteBufferStore: base of other stores, with staging, transactions and views
"""
