"""Bytes: store rows, keys, offsets and positions, as Kafka Streams 4.3 and 4.4 write them.

Pure functions; they know nothing of the package but its errors and extras. The row formats work on Arrow columns (extra
``pipeline``); :mod:`statecore.formats.rows` and :mod:`statecore.formats.serdes` do the same one at a time, without it.
"""
