"""GPUs through a dcgm-exporter: a real HTTP server with a page as the exporter writes it."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from overwatch.sdk.exporter.dcgm import Dcgm
from overwatch.sdk.exporter.gpus import Local, Trainer, look_around, source_of
from tests.real.fake_nvml.machine import Machine

FIRST, SECOND = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52", "GPU-b5e5c8f1-1b2c-3d4e-5f60-718293a4b5c6"
BOTH = frozenset({FIRST, SECOND})
MIB = 1 << 20


def labels(gpu: int, uuid: str, more: str = "") -> str:
    """The labels of one GPU."""
    return (
        f'{{gpu="{gpu}",UUID="{uuid}",pci_bus_id="00000000:{0x1B + gpu:02X}:00.0",device="nvidia{gpu}",'
        f'modelName="NVIDIA H100 80GB HBM3",Hostname="node-7",DCGM_FI_DRIVER_VERSION="550.90.07"{more}}}'
    )


def page(xid: int = 0, more: str = "") -> str:
    """A page of two GPUs; the second leaves blank what it cannot report."""
    one, two = labels(0, FIRST), labels(1, SECOND, ',container="train",namespace="rl",pod="trainer-0"')
    part = labels(0, FIRST, ',GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"')
    return f"""\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{one} 1980
DCGM_FI_DEV_SM_CLOCK{two} 345
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{one} 61
DCGM_FI_DEV_GPU_TEMP{two} 2147483632
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{one} 412.318000
DCGM_FI_DEV_POWER_USAGE{two} 140737488355328.000000
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{one} 97
DCGM_FI_DEV_GPU_UTIL{part} 12
DCGM_FI_DEV_GPU_UTIL{two} 0
# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{one} 0.63
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{one} 60000
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{one} 21000
# HELP DCGM_FI_DEV_FB_RESERVED Framebuffer memory reserved (in MiB).
# TYPE DCGM_FI_DEV_FB_RESERVED gauge
DCGM_FI_DEV_FB_RESERVED{one} 559
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{one} 0
DCGM_FI_DEV_XID_ERRORS{two} {xid}
# HELP DCGM_FI_DEV_ECC_DBE_VOL_TOTAL Total number of double-bit volatile ECC errors.
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{one} 2
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{two} 9223372036854775794
# HELP DCGM_FI_DEV_CLOCK_THROTTLE_REASONS Throttling reasons bitmask.
# TYPE DCGM_FI_DEV_CLOCK_THROTTLE_REASONS gauge
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{one} 32
# HELP DCGM_FI_PROF_PCIE_RX_BYTES The rate of data received over the PCIe bus, in bytes per second.
# TYPE DCGM_FI_PROF_PCIE_RX_BYTES gauge
DCGM_FI_PROF_PCIE_RX_BYTES{one} 2147483640
{more}"""


@dataclass
class Served:
    """What the server answers; a test changes it."""

    url: str = ""
    body: Callable[[], bytes] = lambda: page().encode()
    status: int = 200
    slow: bool = False
    """Send a byte at a time, without end."""


@pytest.fixture
def server() -> Iterator[Served]:
    """A dcgm-exporter."""
    served, ended = Served(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                body = served.body()
                self.send_response(served.status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)
                while served.slow and not ended.wait(0.02):
                    self.wfile.write(b"#")

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{httpd.server_port}/metrics"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield served
    ended.set()
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_fields_are_rows_in_the_units_of_the_catalogue(server: Served) -> None:
    """Per cent become shares, MiB bytes, MHz hertz, flags words; parts of the GPU are left out."""
    reading = Dcgm(server.url).query(BOTH)[FIRST]

    assert reading.numbers == {
        "overwatch.gpu.clock": 1.98e9,
        "hw.temperature": 61.0,
        "hw.power": 412.318,
        "hw.gpu.utilization": 0.97,
        "overwatch.gpu.processors.activity": 0.63,
        "hw.gpu.memory.usage": 60_000.0 * MIB,
        "hw.gpu.memory.limit": 81_559.0 * MIB,
        "hw.errors": 2.0,
        "overwatch.gpu.pcie.receive": 2147483640.0,
    }
    assert reading.throttle == "thermal"


def test_what_dcgm_leaves_blank_is_absent(server: Served) -> None:
    """Numbers near the end of their type mean that there is none; a true 0 stays one."""
    reading = Dcgm(server.url).query(BOTH)[SECOND]

    assert reading.numbers == {"overwatch.gpu.clock": 3.45e8, "hw.gpu.utilization": 0.0}
    assert reading.throttle is None


def test_only_gpus_that_are_asked_for_are_reported(server: Served) -> None:
    """Those that another process samples are left to it."""
    dcgm = Dcgm(server.url)

    assert dcgm.query(frozenset({SECOND})).keys() == {SECOND}
    assert dcgm.query(frozenset()) == {}


def test_the_page_shows_which_gpus_there_are(server: Served) -> None:
    """They are lanes by the same rules as the driver's own."""
    trainer = Trainer(node="n1", env={"OVERWATCH_DCGM_URL": server.url, "CUDA_VISIBLE_DEVICES": "1"})

    found = look_around(trainer, 10.0)

    assert [(lane.id, lane.label) for lane in found.lanes] == [(SECOND, "cuda:0")]


def test_a_new_xid_is_reported_once(server: Served) -> None:
    """The page repeats the last one for ever; one from before the first look is not this run's."""
    dcgm, received = Dcgm(server.url), []
    for code in (31, 31, 79, 79, 79):
        server.body = partial(str.encode, page(xid=code))
        dcgm.query(BOTH)
        received.append([(error.uuid, error.code) for error in dcgm.xids()])

    assert received == [[], [], [(SECOND, 79)], [], []]


@pytest.mark.parametrize(
    "body", [b"", b"<html>no</html>", b"\xff\xfe\x00", b"DCGM_FI_DEV_GPU_UTIL{gpu=", b"x" * 5000]
)
def test_a_page_that_is_none_is_no_gpus(server: Served, body: bytes) -> None:
    """Nothing raises and nothing is read."""
    server.body = lambda: body
    dcgm = Dcgm(server.url, size=4096)

    assert dcgm.open() == ()
    assert dcgm.query(BOTH) == {}


def test_a_server_that_refuses_or_is_gone_is_no_gpus(server: Served) -> None:
    """An error status, and a port where nobody listens; when the page is back, so are the GPUs."""
    dcgm = Dcgm(server.url)
    server.status = 503
    assert dcgm.query(BOTH) == {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert Dcgm(f"http://127.0.0.1:{free.getsockname()[1]}/metrics").query(BOTH) == {}
    server.status = 200
    assert dcgm.query(BOTH).keys() == BOTH


def test_a_page_without_end_is_given_up(server: Served) -> None:
    """A server that always has one byte more does not hold the reader beyond its deadline."""
    server.slow = True

    assert Dcgm(server.url, deadline_s=0.3).query(BOTH) == {}


def test_a_page_that_is_too_large_is_given_up(server: Served) -> None:
    """However much comes, no more than the limit is kept."""
    server.body = lambda: page(more="# more\n" * 10_000).encode()

    assert Dcgm(server.url, size=20_000).query(BOTH) == {}
    assert Dcgm(server.url).query(BOTH).keys() == BOTH


def test_a_sampler_takes_the_page_instead_of_the_driver(server: Served, machine: Machine) -> None:
    """Lanes, labels and readings are the page's; a page that is gone is a lane that ages."""
    machine.gpus("GPU-of-the-driver")
    with machine.sampler(OVERWATCH_DCGM_URL=server.url) as sampler:
        sampler.wait_more("gpu", FIRST, count=3)
        entry = sampler.stated("gpu", FIRST)[-1]
        assert (entry["label"], entry["hw.power"]) == ("cuda:0", 412.318)
        assert {entry["lane"] for entry in sampler.stated("gpu")} == BOTH
        server.body = lambda: page(xid=79).encode()
        sampler.wait(lambda seen: [line["xid"] for line in seen.stated("log")] == ["79"])
        server.status = 500
        sampler.wait_more("host", count=5)
        before = len(sampler.stated("gpu"))
        sampler.wait_more("host", count=10)
        assert len(sampler.stated("gpu")) == before, json.dumps(sampler.stated("gpu")[-1])
        server.status = 200
        sampler.wait_more("gpu", SECOND)


@pytest.mark.parametrize(
    "line",
    [
        f"DCGM_FI_DEV_MIG_MODE{labels(0, FIRST)} N/A",
        f"DCGM_FI_DEV_MIG_MODE{labels(0, FIRST)}",
        f"DCGM_FI_DEV_MIG_MODE{labels(0, FIRST)} ",
        f"DCGM_FI_DRIVER_VERSION{labels(1, SECOND)} 550.90.07",
        'DCGM_FI_DEV_MIG_MODE{gpu="0",UUID="GPU-',
        "{}",
    ],
)
def test_a_line_that_cannot_be_read_is_lost_alone(server: Served, line: str) -> None:
    """Wherever it is, all other lines of both GPUs are read; its reason is noted once."""
    whole = Dcgm(server.url).query(BOTH)
    lines = page().splitlines()
    for place in (0, len(lines) // 2, len(lines)):
        text = "\n".join([*lines[:place], line, *lines[place:]])
        server.body = partial(str.encode, text)
        dcgm = Dcgm(server.url)

        assert [gpu.uuid for gpu in dcgm.open()] == [FIRST, SECOND]
        assert dcgm.query(BOTH) == dcgm.query(BOTH) == whole
        [note] = dcgm.unread.take()
        assert "cannot be read" in note.text
        assert note.trouble


@pytest.mark.parametrize(
    "line",
    [
        "# TYPE DCGM_FI_DEV_GPU_UTIL nonsense",
        "# HELP",
        "#",
        "# TYPE DCGM_FI_DEV_GPU_UTIL counter\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
        "# EOF",
        "\t",
        f'DCGM_FI_DEV_GPU_TEMP{labels(0, FIRST)} 61 # {{trace_id="a"}} 0.5',
        f"DCGM_FI_DEV_GPU_TEMP{labels(0, FIRST)} 61 1700000000000",
    ],
)
def test_comments_exemplars_and_times_are_no_trouble(server: Served, line: str) -> None:
    """Whatever a comment holds, and what follows a value."""
    whole = Dcgm(server.url).query(BOTH)
    server.body = partial(str.encode, page(more=line + "\n"))
    dcgm = Dcgm(server.url)

    assert dcgm.query(BOTH) == whole
    assert dcgm.unread.take() == ()


def test_bytes_that_are_no_text_cost_only_their_label(server: Served) -> None:
    """A model's name that is not UTF-8."""
    server.body = lambda: page().encode().replace(b"NVIDIA H100", b"NVIDIA \xc8H100")
    dcgm = Dcgm(server.url)

    assert [gpu.uuid for gpu in dcgm.open()] == [FIRST, SECOND]
    assert dcgm.query(BOTH).keys() == BOTH


def test_a_page_of_parts_alone_shows_the_parts(server: Served) -> None:
    """GPUs split by MIG, of which the page has no whole rows: each instance is a lane with its readings."""
    instance = ',GPU_I_PROFILE="3g.40gb",GPU_I_ID="%d"'
    rows = [
        f"{field}{labels(gpu, uuid, instance % part)} {value}"
        for field, value in (("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5), ("DCGM_FI_DEV_FB_USED", 1000))
        for gpu, uuid in ((0, FIRST), (1, SECOND))
        for part in (1, 2)
    ]
    server.body = partial(str.encode, "\n".join(rows))
    dcgm = Dcgm(server.url)
    lanes = look_around(Trainer(node="n1", env={"OVERWATCH_DCGM_URL": server.url}), 10.0).lanes

    first, second = dcgm.open()
    assert (first.partitioned, first.parts) == (True, (f"MIG-{FIRST}/1/0", f"MIG-{FIRST}/2/0"))
    assert [lane.label for lane in lanes] == ["gpu0.0", "gpu0.1", "gpu1.0", "gpu1.1"]
    assert {lane.id for lane in lanes} == {*first.parts, *second.parts}
    readings = dcgm.query(frozenset(first.parts))
    assert {reading.numbers["hw.gpu.utilization"] for reading in readings.values()} == {0.5}
    assert readings.keys() == set(first.parts)


@pytest.mark.parametrize("url", ["127.0.0.1:9400", "ftp://h/metrics", "http:///metrics"])
def test_an_address_that_is_none_is_refused(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The message states what to write, and the driver is asked instead."""
    with pytest.raises(ValueError, match=r"http://127.0.0.1:9400/metrics"):
        Dcgm(url)
    assert isinstance(source_of(Trainer(env={"OVERWATCH_DCGM_URL": url})), Local)
    assert "the drivers are asked instead" in caplog.text
