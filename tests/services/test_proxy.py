"""The server behind nginx, configured as docs/guides/serving.md shows."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn")

from crosscut.server import Settings, make_app
from tests.served import running, small_index, until

NGINX = shutil.which("nginx")
pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx here")
GUIDE = Path(__file__).parents[2] / "docs/guides/serving.md"


def test_the_documented_proxy_serves_and_drops_slow_clients(tmp_path: Path) -> None:
    example = re.search(r"```nginx\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert example is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(make_app(small_index(), Settings(allow_host=("search.example",)))) as url:
        server = example[1].replace("http://127.0.0.1:8000", url).replace("8080", f"127.0.0.1:{port}")
        server = server.replace("client_header_timeout 10s", "client_header_timeout 1s")
        paths = "".join(
            f"{name}_temp_path {tmp_path / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
            f"http {{ access_log off; {paths}\n{server} }}\n"
        )
        proxy = subprocess.Popen([str(NGINX), "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)])
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"host": "search.example"}) as client:

                def ready() -> bool:
                    try:
                        return client.get("/ready").status_code == 200
                    except httpx.TransportError:
                        return False

                until(ready)
                answer = client.post("/search", json={"query": "red cat", "budget": 30})
                assert (answer.status_code, answer.json()["calls"]) == (200, 30)
                assert client.get("/info", headers={"host": "other.example"}).status_code == 400
                assert client.post("/search", content=b" " * (5 << 20)).status_code == 413
            with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
                slow.sendall(b"POST /search HTTP/1.1\r\nhost: sea")
                began = time.monotonic()
                assert slow.recv(1000).startswith((b"", b"HTTP/1.1 408"))
                assert time.monotonic() - began < 15
        finally:
            proxy.terminate()
            proxy.wait(20)
