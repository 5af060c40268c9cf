"""An application's state directory: what lies in it, its lock and owner, and the journalled swap of tasks."""
