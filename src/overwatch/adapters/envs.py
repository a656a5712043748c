"""What envs that step together did: numbers, episodes and actions of a run.

Rules: a turn is copied, and summed up with many others. Ten times a second at most, and in one percent of the
thread's time, all is sent: episodes that ended, the newest reward and action, the mean turn since the last
time; beside them the first turn with a reward that is not finite. Every transition counts, a reset does not.
Must not know which library the envs come from.
"""

import time
from typing import Any, Final

import numpy as np

from overwatch.adapters.border import flush_at_exit
from overwatch.adapters.episodes import Ended, Episodes, together
from overwatch.adapters.turns import Block, Stated, Turns, column
from overwatch.sdk import Run

INTERVAL_S: Final = 0.1
REST: Final = 100
"""How many times as long the training thread works for itself as it sends, on a busy machine too."""
PATIENCE_S: Final = 1.0
MOST_CHOICES: Final = 64
"""More actions than this are numbers, and no words."""
MOST_ACTING: Final = 1024
"""Envs whose actions are sent: words are made one by one."""


class EnvReporter:
    """Reports what `num_envs` envs did, with the ids 0, 1, 2, ...

    `choices` is how many actions there are, where they are counted from 0; else actions are not reported.
    With `resets_next` the step after an env's end resets it and is no transition.
    """

    def __init__(
        self, run: Run, num_envs: int, lane: str | None = None, *, choices: int = 0, resets_next: bool = False
    ) -> None:
        self._run, self._lane, self._ids = run, lane, np.arange(num_envs)
        is_few = choices <= MOST_CHOICES and num_envs <= MOST_ACTING
        self._words = [str(choice) for choice in range(choices if is_few else 0)]
        self._waiting = Turns(num_envs, resets_next=resets_next)
        self._sums, self._ended = Episodes(num_envs), list[Ended]()
        self._transitions, self._turns, self._seconds = 0, 0, 0.0
        self._next = self._latest = self._rests_until = 0.0
        self._rewards, self._is_finite = np.zeros(num_envs), True
        self._actions: Any = None
        flush_at_exit(self)

    def turn(
        self, rewards: Any, seconds: float, ends: Any = None, *, rows: Any = None, actions: Any = None,
        stated: Stated | None = None,
    ) -> None:  # fmt: skip
        """One turn of all envs, or of those of `rows`: what it paid, how long it took, what ended with it.

        `stated` are episodes as the library has them: which envs', their returns and lengths.
        """
        is_full = self._waiting.add(rewards, ends, rows, stated)
        self._turns += 1
        self._seconds += seconds
        self._actions = actions if rows is None else None
        now = time.monotonic()
        if now >= self._next and self._is_time(now):
            began, self._latest = time.thread_time(), now + PATIENCE_S
            self.settle()
            self._rests_until = time.thread_time() + REST * (time.thread_time() - began)
        elif is_full:
            self._add(self._waiting.take())

    def batch(self, rewards: Any, ends: Any, seconds: float, actions: Any = None) -> Ended | None:
        """Turns that come at once, of shape (envs, turns); the episodes that ended in them."""
        paid, over = (column(values).reshape(self._ids.size, -1).T for values in (rewards, ends))
        self._turns += len(paid)
        self._seconds += seconds
        self._actions = actions
        self._add(Block(paid, over, None, None))
        ended = together(self._ended)
        self.flush()
        return ended

    def episodes(self, envs: Any, returns: Any, lengths: Any) -> None:
        """Episodes that the library states where no turn is given its ends."""
        self._ended.append((np.asarray(envs), np.asarray(returns, float), np.asarray(lengths, float)))

    def settle(self) -> None:
        """Send the episodes that have ended, and numbers where it is their time."""
        self._add(self._waiting.take())
        ended, self._ended = together(self._ended), []
        if ended is not None:
            self._run.episodes(env_id=ended[0], episode_return=ended[1], length=ended[2])
        if self._turns and time.monotonic() >= self._next:
            self._send_numbers()

    def flush(self) -> None:
        """Send what is newest, if there is anything new."""
        self.settle()
        if self._turns:
            self._send_numbers()

    def forget(self, rows: Any = None) -> None:
        """Envs were reset, all or those of `rows`: what ran there has no end, and the next turn is a step."""
        rows = slice(None) if rows is None else rows
        if not self._waiting.have_ended(rows):
            self._add(self._waiting.take())
            self._sums.forget(rows)
            self._waiting.begin(rows)

    def crashed(self, env_id: int, error: Exception) -> None:
        """An env raised: what ended before it is sent first."""
        self.flush()
        self._run.env_crashed(env_id, error, step=self._transitions // self._ids.size)

    def _is_time(self, now: float) -> bool:
        """Whether the thread has worked long enough for itself; it cannot have before `_next`."""
        rest = self._rests_until - time.thread_time()
        self._next = min(now + max(rest, 0.0), max(self._latest, now))
        return self._next <= now

    def _add(self, block: Block | None) -> None:
        if block is None:
            return
        counted, finite = block.counted, np.isfinite(block.paid)
        finite |= False if counted is None else ~counted
        self._transitions += block.paid.size if counted is None else int(np.count_nonzero(counted))
        if self._is_finite and not finite.all():
            self._see(block.until(int(finite.all(axis=1).argmin()) + 1))
            self._send_numbers()
        self._see(block)
        self._is_finite = bool(finite[-1].all())
        ended = self._sums.add(block)
        if ended is not None:
            self._ended.append(ended)

    def _see(self, block: Block) -> None:
        """Take the newest reward of each env."""
        counted = block.counted
        if counted is None:
            self._rewards[:] = block.paid[-1]
        else:
            newest = len(counted) - 1 - counted[::-1].argmax(axis=0)
            np.copyto(self._rewards, block.paid[newest, self._ids], where=counted.any(axis=0))

    def _send_numbers(self) -> None:
        seconds, step = self._seconds / self._turns, self._transitions // self._ids.size
        self._turns, self._seconds = 0, 0.0
        self._next = time.monotonic() + INTERVAL_S
        self._run.envs(env_id=self._ids, step=step, lane=self._lane, reward=self._rewards, step_time=seconds)
        if self._words and self._actions is not None:
            chosen = column(self._actions).reshape(self._ids.size, -1)[:, -1].tolist()
            self._run.actions(env_id=self._ids, op=[self._words[one] for one in chosen], step=step)
