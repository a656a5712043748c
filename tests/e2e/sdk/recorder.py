"""A collector that may be killed: its own program, which has a request on disk before it answers.

Run as `python recorder.py PORT FILE MUTE`. Each request is one write: lengths, path, body. While the file
MUTE is there, requests are kept and the answer is swallowed: the connection closes.
"""

import gzip
import os
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEAD = struct.Struct("<II")


def serve(port: int, file: str, mute: str) -> None:
    """Answer until killed."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            path = self.path.encode()
            with lock:
                os.write(fd, HEAD.pack(len(path), len(body)) + path + body)
            if os.path.exists(mute):  # noqa: PTH110 starts fast without pathlib
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.serve_forever(0.05)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], sys.argv[3])
