"""An application's state directory: layout, lock, ownership, and the journaled swap of task directories."""
