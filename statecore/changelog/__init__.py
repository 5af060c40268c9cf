"""Topic metadata, offsets, offset ranges and the columnar changelog reader: records become Arrow columns, never Python
objects.
"""
