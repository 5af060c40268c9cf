"""The declared instruments of metrics."""

from __future__ import annotations

from statecore import metrics
from statecore.metrics import Instrument

INSTRUMENTS = tuple(value for value in vars(metrics).values() if isinstance(value, Instrument))
"""In the order of their declaration, which is that of the documentation."""
