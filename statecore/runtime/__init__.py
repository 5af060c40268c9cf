"""The tasks of an application that works: their stores and offsets, and when a checkpoint is due."""
