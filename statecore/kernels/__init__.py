"""Kernels as machine code on disk, and the memory they work on; what they compute is beside those who use them."""
