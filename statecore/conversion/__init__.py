"""A task's directory, converted between the layouts of releases of Kafka Streams: what is to become of it, decided.

:mod:`statecore.conversion.execute` does it.
"""

from statecore.conversion.model import DatabaseConversion, RowMove, StoreConversion, TaskConversion
from statecore.conversion.plan import plan_conversion

__all__ = ["DatabaseConversion", "RowMove", "StoreConversion", "TaskConversion", "plan_conversion"]
