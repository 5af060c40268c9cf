"""Bytes: store rows, keys, offsets and positions, as Kafka Streams 4.3.1 writes them.

Pure functions; imports nothing else of the package.
"""
