"""Active and standby tasks: their stores, offsets and commits."""
