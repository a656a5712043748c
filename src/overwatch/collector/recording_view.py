"""The view API and the page over a recording, behind the same guard as a collector's.

Owns the listener, the loop and the thread that reads. Rules: where other machines can reach it, readers need
a token, made anew each time; nothing can be acted on. Must not know what is recorded.
"""

import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from overwatch.collector.auth import Role, TokenConfig, TokensConfig
from overwatch.collector.connections import LoopThread, WebListener
from overwatch.collector.extensions.view import ENTRY, application
from overwatch.collector.guard import Guard, SecurityConfig
from overwatch.collector.health import Health
from overwatch.collector.net import Address, Listening
from overwatch.collector.setting_types import Secret
from overwatch.collector.tally import Tally
from overwatch.collector.tls import TlsConfig
from overwatch.feeds.player import AnyPlayer
from overwatch.feeds.shared import SharedReplay
from overwatch.serve.past import PastAnswers
from overwatch.serve.stream import FrameNotifier, ViewApi

_ANYWHERE: Final = frozenset({"0.0.0.0", "::", ""})


class RecordingView:
    """A recording that is served; `start` once, `stop` any number of times."""

    def __init__(
        self,
        opened: Callable[[], AnyPlayer],
        wanted: Address,
        *,
        may_move: bool = True,
        tls: TlsConfig | None = None,
    ) -> None:
        """`opened` is called in the thread that reads; a busy port is an error unless it `may_move`.

        Raises `OSError` or `ValueError` for certificates that cannot be used.
        """
        self.token = None if wanted.loopback else secrets.token_urlsafe(32)
        """What readers log in with; none is needed on this machine."""
        read = None if self.token is None else TokenConfig(token=Secret(self.token))
        guard = Guard(SecurityConfig(tokens=TokensConfig(read=read)), Health(), Tally())
        guard.load()
        notifier = FrameNotifier()
        self.shared = SharedReplay(opened, notifier.publish)
        """Who reads the recording."""
        api = ViewApi(self.shared, notifier, admits=partial(guard.may, Role.READ))
        api.past = PastAnswers(self.shared, is_all=True)
        self._notifier = notifier
        self._loop = LoopThread()
        self._loop_runs = False
        app = guard.protect(application(api, guard), ENTRY, wanted)
        self._listener = WebListener(self._loop, wanted, app, guard.certificates(tls))
        self._listener.may_move = may_move
        self._listener.announce = self._announce
        self.url = ""
        """Of the page, once it listens."""
        self.moved: str | None = None
        """Why it is not the wanted port."""

    def start(self) -> None:
        """Listen, then read; raises `AddressError`."""
        self._loop.start()
        self._loop_runs = True
        try:
            self._listener.start()
        except BaseException:
            self.stop()
            raise
        self.shared.start()

    def stop(self) -> None:
        """Hang up on all readers, and end."""
        self._notifier.close()
        self._listener.stop()
        self.shared.stop()
        if self._loop_runs:
            self._loop_runs = False
            self._loop.stop()

    def _announce(self, listening: Listening, has_tls: bool) -> None:  # noqa: FBT001 as listeners call it
        found = listening.address
        if found.host in _ANYWHERE:
            found = Address(host=socket.gethostname(), port=found.port)
        self.url, self.moved = f"{found.url('https' if has_tls else 'http')}/", listening.moved
