"""The commands of ``statecore repo``, one module each: they administer a repository of snapshots."""
