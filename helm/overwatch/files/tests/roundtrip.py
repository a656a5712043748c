"""Send the collector one number of a run of its own over OTLP, and find it in /metrics.

Standard library only; the addresses and tokens come from the environment.
"""

import json
import os
import ssl
import sys
import time
import urllib.request

SEND, SCRAPE = os.environ["SEND_URL"], os.environ["SCRAPE_URL"]
INGEST, READ = os.environ["INGEST_TOKEN"], os.environ["READ_TOKEN"]
RUN = f"helm-test-{int(time.time())}"
TRUST = ssl.create_default_context(cafile=os.environ.get("CA_FILE") or None)


def call(url: str, token: str, body: bytes | None = None) -> str:
    """The answer's text; raises `OSError`."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    trust = TRUST if url.startswith("https:") else None
    asked = urllib.request.Request(url, body, headers)  # noqa: S310 the chart's own addresses
    with urllib.request.urlopen(asked, timeout=10, context=trust) as got:  # noqa: S310
        return str(got.read().decode())


def text(key: str, value: dict[str, str | float]) -> dict[str, object]:
    """An attribute."""
    return {"key": key, "value": value}


def request() -> bytes:
    """One log record: the entropy of a policy."""
    record = {
        "timeUnixNano": str(time.time_ns()),
        "eventName": "overwatch.measured",
        "attributes": [
            text("overwatch.scope", {"stringValue": "policy"}),
            text("overwatch.policy.entropy", {"doubleValue": 0.625}),
        ],
    }
    resource = {
        "attributes": [
            text("rl.run.id", {"stringValue": RUN}),
            text("telemetry.distro.name", {"stringValue": "overwatch"}),
        ]
    }
    logs = [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]
    return json.dumps({"resourceLogs": logs}).encode()


def main() -> int:
    """Send until it is taken, then look until it is there."""
    until, why, sent = time.monotonic() + 60, "nothing was tried", False
    while time.monotonic() < until:
        try:
            if not sent:
                call(f"{SEND}/v1/logs", INGEST, request())
                sent = True
            page = call(f"{SCRAPE}/metrics", READ)
            if any(RUN in line and "overwatch_policy_entropy" in line for line in page.splitlines()):
                sys.stdout.write(f"one log record of run {RUN} was taken and is in /metrics\n")
                return 0
            why = "it was taken and is not in /metrics"
        except OSError as error:
            why = f"{SCRAPE if sent else SEND}: {error}"
        time.sleep(1)
    sys.stderr.write(f"failed: {why}\n")
    return 1


sys.exit(main())
