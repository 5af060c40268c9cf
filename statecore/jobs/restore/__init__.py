"""Restore and advance: stores rebuilt from changelogs, placed or published."""
