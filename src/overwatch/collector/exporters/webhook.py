"""The section of the exporter `webhook`: messages as JSON or for Slack, posted to an address."""

import msgspec

from overwatch.collector.secrets import Secret
from overwatch.serve.notices import Level, NoticeLimits, Shape
from overwatch.serve.webhook import Hook, Webhook


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.webhook`."""

    url: Secret | None = None
    """Where messages go, e.g. `${env:SLACK_WEBHOOK_URL}`; never shown."""
    shape: Shape = "json"
    """`json`, or `slack` for what Slack, Mattermost and others take."""
    headers: dict[str, Secret] = {}
    """Sent with each message; never shown."""
    min_severity: Level = "warning"
    """The least severe finding that is sent: `info`, `warning` or `critical`."""
    per_minute: int = 30
    """Messages in any minute; what comes on top waits for its turn, the most severe first."""
    timeout_s: float = 10.0
    """Seconds to wait for an answer."""

    def __post_init__(self) -> None:
        self.limits()
        if self.url is not None:
            self.carrier()

    def limits(self) -> NoticeLimits:
        """What is sent; raises `ValueError`."""
        return NoticeLimits(min_severity=self.min_severity, per_minute=self.per_minute)

    def carrier(self) -> Webhook:
        """What posts it; raises `ValueError`."""
        headers = {name: value.reveal() for name, value in self.headers.items()}
        url = "" if self.url is None else self.url.reveal()
        hook = Hook(url=url, shape=self.shape, headers=headers, timeout_s=self.timeout_s)
        return Webhook(hook)

    @property
    def missing(self) -> tuple[str, str] | None:
        """The key without which nothing can be sent, and what to do; `None` where it is there."""
        if self.url is not None:
            return None
        return "url", "the webhook has no address; give one, e.g. ${env:WEBHOOK_URL}"
