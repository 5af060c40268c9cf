"""Byte formats of Kafka Streams 3.9 to 4.4: store rows, keys, offsets and positions.

Pure functions that import only the package's errors and extras. The row formats work on Arrow columns (extra
``pipeline``); :mod:`statecore.formats.rows` and :mod:`statecore.formats.serdes` handle single rows without it.
"""
