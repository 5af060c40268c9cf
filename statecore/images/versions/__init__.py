"""Versioned stores: sorted records of a range, and their replay into rows. Entry point: :mod:`.build`."""
