"""Conversion of task directories between the layouts of Kafka Streams releases: plan here, execution in
:mod:`statecore.conversion.execute`.
"""

from statecore.conversion.model import DatabaseConversion, RowMove, StoreConversion, TaskConversion
from statecore.conversion.plan import plan_conversion

__all__ = ["DatabaseConversion", "RowMove", "StoreConversion", "TaskConversion", "plan_conversion"]
