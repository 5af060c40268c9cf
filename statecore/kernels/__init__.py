"""Compiles, caches, loads and calls Numba kernels as machine code; each kernel is defined beside its users."""
