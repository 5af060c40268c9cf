"""An application's directory on this machine: layout, lock, owner, and whole tasks swapped by a journal."""
