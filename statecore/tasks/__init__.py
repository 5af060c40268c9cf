"""A task: its stores and their offsets, as an active task that processes and as a standby task that follows."""
