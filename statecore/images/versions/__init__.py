"""Versioned stores: sorted records of a range, and their replay into rows; :mod:`.build` is the way in."""
