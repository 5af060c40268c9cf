"""Inspection of state directories: findings, the checks that make them, and what repairs them."""
