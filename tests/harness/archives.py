"""Archives of the classes that broker and Kafka Streams load, parsed and verified once for all JVMs of tests and demo.

``python -m tests.harness.archives`` (``make setup`` does) runs a broker and a small application once and lets both JVMs
write what they have loaded (class data sharing, ``-XX:ArchiveClassesAtExit``) into ``.build``. An archive belongs to
one build of the JVM and one set of jars, so its name says which. Without it all starts as ever, seconds later.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Literal

from statecore.spark.jvm import jvm_identity
from tests.harness import jars

Program = Literal["broker", "streams"]

_recording: dict[Program, Path] = {}


def options(program: Program) -> list[str]:
    """What the java command is given besides, so that the program starts from its archive where there is one."""
    if program in _recording:
        return [f"-XX:ArchiveClassesAtExit={_recording[program]}"]
    archive = path(program)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def path(program: Program) -> Path:
    """Where the archive of a program lies for the present JVM and jars, made or not."""
    identity = f"{jvm_identity()}\n{jars.classpath()}\n{(jars.JARS / 'complete.json').read_text()}"
    return jars.BUILD / f"{program}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"


def make() -> None:
    """Makes both archives, where they are missing.

    Raises:
        BrokerFailed: the broker did not start.
        StreamsFailed: the application did not.
    """
    if path("broker").exists() and path("streams").exists():
        return
    from tests.harness import topics
    from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
    from tests.harness.broker import Broker
    from tests.harness.streams import StreamsApplication, StreamsJvm
    from tests.harness.topics import Record

    with tempfile.TemporaryDirectory(dir=jars.BUILD) as directory:
        scratch = Path(directory)
        _recording.update(broker=scratch / "broker.jsa", streams=scratch / "streams.jsa")
        with Broker(scratch / "broker") as broker, StreamsJvm(scratch / "streams.log") as jvm:
            servers = broker.bootstrap_servers
            topics.create(servers, "input")
            topics.produce(servers, "input", [Record(b"a", b"1")])
            build = two_stores("input")
            with StreamsApplication(jvm, "archived", servers, scratch, build, stores=PLAIN_AND_STAMPED) as application:
                topics.wait_until_consumed(servers, "archived", ["input"])
                for store in PLAIN_AND_STAMPED:
                    application.query_rows(store, 0)
        made = dict(_recording)
        _recording.clear()
        for program, archive in made.items():
            if archive.exists():  # nothing depends on it
                archive.replace(path(program))


def main() -> None:
    """Makes the archives, and says which there are."""
    try:
        make()
    except Exception as error:
        print(f"no class archives: {error}", file=sys.stderr)
    else:
        found = [str(archive) for archive in (path("broker"), path("streams")) if archive.exists()]
        print(f"class archives: {', '.join(found) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    from tests.harness import archives

    archives.main()  # of the module that the broker asks for its options, which is another one than this
