"""Numba kernels of building: what they compute (``*_source``), and how they are called (``*kernel``)."""
