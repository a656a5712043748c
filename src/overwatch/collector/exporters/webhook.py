"""The exporter `webhook`: a message when a finding starts and one when it ends, as JSON or for Slack."""

from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.collector.context import Context
from overwatch.collector.secrets import Secret
from overwatch.serve.notices import Level, NoticeLimits, Shape
from overwatch.serve.webhook import Hook, Webhook

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

NAME: Final = "webhook"
_SENT: Final = "overwatch_exporter_sent_notices"
_LOST: Final = "overwatch_exporter_lost_notices"


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.webhook`."""

    url: Secret | None = None
    """Where messages go, e.g. `${env:SLACK_WEBHOOK_URL}`; never shown."""
    shape: Shape = "json"
    """`json`, or `slack` for what Slack, Mattermost and others take."""
    headers: dict[str, Secret] = {}
    """Sent with each message; never shown."""
    min_severity: Level = "warning"
    """The least severe finding that is told: `info`, `warning` or `critical`."""
    per_minute: int = 30
    """Messages in any minute; what comes on top waits for its turn, the most severe first."""
    timeout_s: float = 10.0
    """Seconds to wait for an answer."""

    def __post_init__(self) -> None:
        self.limits()
        if self.url is not None:
            self.hook()

    def limits(self) -> NoticeLimits:
        """What is told; raises `ValueError`."""
        return NoticeLimits(min_severity=self.min_severity, per_minute=self.per_minute)

    def hook(self) -> Hook:
        """Where it is told; raises `ValueError`."""
        headers = {name: value.reveal() for name, value in self.headers.items()}
        url = "" if self.url is None else self.url.reveal()
        return Hook(url=url, shape=self.shape, headers=headers, timeout_s=self.timeout_s)


class WebhookExporter:
    """A frame sink that tells findings."""

    def __init__(self, config: WebhookConfig, context: Context, name: str = NAME) -> None:
        account = _Account(name, context)
        self._name, self._health = name, context.health
        self._webhook = Webhook(config.hook(), account, config.limits(), context.journal.note(name))

    def start(self) -> None:
        """Begin to send."""
        self._webhook.start()
        self._health.watch(self._name, lambda: self._webhook.is_running)

    def publish(self, frame: "Frame") -> None:
        """Have the frame looked at."""
        self._webhook.publish(frame)

    def close(self) -> None:
        """Send what the last frame tells."""
        self._webhook.close()

    def stop(self) -> None:
        """Send what the last frame tells."""
        self._webhook.close()


class _Account:
    """What became of messages, as counters and as the exporter's health."""

    def __init__(self, name: str, context: Context) -> None:
        self._name = name
        self._tally, self._health = context.tally, context.health
        for series in (_SENT, _LOST):
            self._tally.add(series, 0, exporter=name)

    def sent(self) -> None:
        """One arrived."""
        self._tally.add(_SENT, 1, exporter=self._name)
        self._health.recovered(self._name)

    def lost(self, count: int) -> None:
        """So many will never be sent."""
        self._tally.add(_LOST, count, exporter=self._name)

    def trouble(self, error: str) -> None:
        """Why one did not arrive."""
        self._health.failed(self._name, error)
