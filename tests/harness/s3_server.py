"""A real S3 server for tests (:mod:`tests.harness.versitygw`), with buckets and users."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statecore.objectstore.s3_location import S3Location
from tests.harness import process_guard, versitygw
from tests.harness.broker import free_ports

ACCESS, SECRET, REGION = "tests", "a secret of the tests", "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
"""The owner's, as environment variables."""

_START_SECONDS = 600.0


class S3ServerFailed(RuntimeError):
    """The server did not start; the message ends with what it said."""


@dataclass
class S3Server:
    """A server that keeps its objects as files of a directory.

    Attributes:
        root: the directory.
        endpoint: its URL.
        stays: whether it goes on when this process has ended; ``s3.json`` in the directory then says which it is.
        has_users: whether it can have others than its owner.
        has_versions: whether its buckets can keep versions.
    """

    root: Path
    endpoint: str = ""
    stays: bool = False
    has_users: bool = False
    has_versions: bool = False
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> S3Server:
        """Start it; unless it stays, it ends with this process, however that one dies.

        Raises:
            S3ServerFailed: it did not start.
        """
        data = self.root / "data"
        data.mkdir(parents=True, exist_ok=True)
        try:  # versitygw keeps what it knows of objects in extended attributes
            os.setxattr(data, "user.statecore", b"1")
        except (AttributeError, OSError) as error:
            raise S3ServerFailed(
                f"{data} takes no extended attributes: set TMPDIR to a directory that does ({error})"
            ) from error
        log = self.root / "server.log"
        for _ in range(3):
            (port,) = free_ports(1)
            command = [str(versitygw.program()), "--port", f"127.0.0.1:{port}", *self._users(), "posix"]
            command += [*self._versions(), str(data)]
            with log.open("wb") as said:
                self._child = subprocess.Popen(
                    command if self.stays else process_guard.command_line(os.getpid(), command),
                    env={**os.environ, "ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET},
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            if self._answers(port):
                self.endpoint = f"http://127.0.0.1:{port}"
                if self.stays:
                    pid = self._child.pid
                    record = {"pid": pid, "started_at": process_guard.started_at(pid), "endpoint": self.endpoint}
                    (self.root / "s3.json").write_text(json.dumps(record))
                return self
            self.stop()
        raise S3ServerFailed(log.read_text(errors="replace")[-2000:])

    def _users(self) -> list[str]:
        if not self.has_users:
            return []
        users = self.root / "users"
        users.mkdir(exist_ok=True)
        return ["--iam-dir", str(users), "--iam-cache-disable"]

    def _versions(self) -> list[str]:
        if not self.has_versions:
            return []
        versions = self.root / "versions"
        versions.mkdir(exist_ok=True)
        return ["--versioning-dir", str(versions)]

    def _answers(self, port: int) -> bool:
        assert self._child is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._child.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return self._child.poll() is None
            time.sleep(0.02)
        return False

    def stop(self) -> None:
        """Stop it; again is fine."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait(30)
            self._child = None

    def client(self) -> Any:
        """A boto3 client of the server's owner."""
        import boto3

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
        )

    def bucket(self, name: str) -> S3Location:
        """A bucket, made where it is missing."""
        client = self.client()
        with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
            client.create_bucket(Bucket=name)
        return S3Location(name, endpoint=self.endpoint, region=REGION)

    def reader(self, bucket: str, access: str = "reader", secret: str = "a secret of the reader") -> tuple[str, str]:
        """A user who may list a bucket and read its objects, and do nothing else; access key and secret."""
        return self.user(bucket, access, "s3:GetObject", secret=secret)

    def user(self, bucket: str, access: str, *actions: str, secret: str = "a secret of the user") -> tuple[str, str]:
        """A user who may list a bucket, and do this with its objects; access key and secret."""
        command = [str(versitygw.program()), "admin", "--access", ACCESS, "--secret", SECRET]
        command += ["--endpoint-url", self.endpoint, "create-user", "--access", access, "--secret", secret]
        subprocess.run([*command, "--role", "user"], check=True, capture_output=True)
        allowed = {"Effect": "Allow", "Principal": {"AWS": [access]}}
        statements = [
            {**allowed, "Action": ["s3:ListBucket"], "Resource": f"arn:aws:s3:::{bucket}"},
            {**allowed, "Action": list(actions), "Resource": f"arn:aws:s3:::{bucket}/*"},
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.client().put_bucket_policy(Bucket=bucket, Policy=policy)
        return access, secret


@contextmanager
def serving(*, has_users: bool = False, has_versions: bool = False) -> Iterator[S3Server]:
    """A server with a directory of its own, until the end."""
    with tempfile.TemporaryDirectory(prefix="statecore-s3-") as directory:
        server = S3Server(Path(directory), has_users=has_users, has_versions=has_versions).start()
        try:
            yield server
        finally:
            server.stop()
