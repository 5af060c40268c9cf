"""Options that an application sets for its RocksDB databases: ``rocksdb.config.setter`` from a few lines of Java.

::

    setter = config_setter(jvm, "options.setEnableBlobFiles(true); options.setMinBlobSize(0);")
    StreamsApplication(jvm, …, properties={CONFIG_SETTER: setter})

The lines see ``storeName`` and ``options``, which is ``org.rocksdb.Options``; in Kafka Streams 4.4.0 an adapter that
hands what is of a database to its ``DBOptions``, and what is of a family to the ``ColumnFamilyOptions`` of rows.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from tests.harness.java_source import compile_class

if TYPE_CHECKING:
    from tests.harness.streams import StreamsJvm

CONFIG_SETTER = "rocksdb.config.setter"
"""The property of Kafka Streams."""

_PACKAGE = "statecore.harness"
_TEMPLATE = """
package %(package)s;

import java.util.*;
import java.nio.file.Paths;
import org.rocksdb.*;
import org.rocksdb.util.*;

public class %(name)s implements org.apache.kafka.streams.state.RocksDBConfigSetter {
    %(members)s

    public void setConfig(final String storeName, final org.rocksdb.Options options, final Map configs) {
        %(body)s
    }

    public void close(final String storeName, final org.rocksdb.Options options) {
    }
}
"""

_numbers = count(1)


def config_setter(jvm: StreamsJvm, body: str, members: str = "") -> Any:
    """The class of a ``RocksDBConfigSetter`` whose ``setConfig`` runs these statements.

    Args:
        jvm: where it is compiled, and where the application runs.
        body: statements over ``storeName`` and ``options``.
        members: fields, methods and nested classes besides. What native code keeps must be held by a static field.

    Raises:
        NotCompiled: the compiler refused the source.
    """
    name = f"Setter{next(_numbers)}"
    source = _TEMPLATE % {"package": _PACKAGE, "name": name, "members": members, "body": body}
    return compile_class(jvm, f"{_PACKAGE}.{name}", source)
