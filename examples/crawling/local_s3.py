"""An S3 store on this machine while a context is open: moto's server, in a separate process on a free port.

    with running_s3("crawl") as environment:
        subprocess.run(["aws", "s3", "ls", "s3://crawl"], env=environment)

It keeps everything in memory and checks no credentials, which suits experiments and tests. The server exits when its
standard input is closed. The operating system closes it even if this process is killed, so no server is left behind.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import ProxyHandler, Request, build_opener

SECONDS_TO_END = 5


def serve() -> None:
    """Serve until standard input is closed. The first line of standard output is the port."""
    from moto.server import ThreadedMotoServer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.buffer.read()
    server.stop()


@contextmanager
def running_s3(*buckets: str) -> Iterator[dict[str, str]]:
    """Run the store with these buckets; yields an environment in which asyncrec and the AWS SDKs use it.

    It is this process's environment without its own ``AWS_*`` variables, which could lead to another store.

    Raises:
        RuntimeError: the server did not start.
    """
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.strip().isdigit():
                raise RuntimeError(f"the local S3 server did not start; it printed {line!r}")
            endpoint = f"http://127.0.0.1:{int(line)}"
            direct = build_opener(ProxyHandler({}))
            for bucket in buckets:
                direct.open(Request(f"{endpoint}/{bucket}", method="PUT"), timeout=30).close()
            mine = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            yield mine | {
                "AWS_ENDPOINT_URL_S3": endpoint,
                "AWS_ACCESS_KEY_ID": "anybody",
                "AWS_SECRET_ACCESS_KEY": "is-let-in",
                "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "NO_PROXY": "127.0.0.1",
            }
        finally:
            process.stdin.close()
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    serve()
