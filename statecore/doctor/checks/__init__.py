"""From an inspection to findings: pure functions, one idea a module."""
