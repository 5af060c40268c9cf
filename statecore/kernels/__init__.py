"""Kernels as machine code on disk, and how they are called; what they compute is beside those who use them."""
