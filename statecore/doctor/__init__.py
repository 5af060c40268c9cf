"""Diagnosis of state directories: findings, the checks that produce them, and repairs."""
