"""What a consumer loop needs around a store: restoring it, logging its changes, when to commit, and its settings.

::

    settings = ProcessorSettings.from_properties(properties)
    store.open()
    restore(store, changelog, settings.bootstrap_servers)       restoring.py
    logged = ChangeLoggingStore(store, producer, changelog)     change_logging.py
    policy = CommitPolicy(settings.commit, [logged])            commit_policy.py
"""
