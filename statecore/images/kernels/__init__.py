"""Numba kernels of run building and merging (``*_source``), and their Python interfaces (``*kernel``)."""
