"""A real S3 server on loopback, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from patience import HUNG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "archive"
# It says which port it got, and ends with the process that started it.
PROGRAM = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def use(port: int) -> None:
    """Sets the server for s3:// URLs from now on, in this process and its children."""
    import fsspec

    os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@contextmanager
def serving() -> Iterator[int]:
    """Gives the port."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.stdin.close()
            server.wait(HUNG_SECONDS)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a bucket."""
    import boto3

    before = dict(os.environ)
    with serving() as port:
        use(port)
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield f"s3://{BUCKET}"
    os.environ.clear()
    os.environ.update(before)
