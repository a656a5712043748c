"""Logging in from a browser: a token once, then a cookie that no script can read.

Rules: the cookie holds nothing but what is made of the token, so it ends with the token; wrong tokens are
counted by peer, and one with too many waits. Must not know what is shown to who is let in.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from overwatch import __version__
from overwatch.collector.auth import LONGEST_TOKEN, Role, Throttle, kept_for
from overwatch.collector.guard import Guard, cookie_of
from overwatch.serve.answers import BadRequest, answer, only, problem

LOGIN: Final = "/api/v1/login"
ME: Final = "/api/v1/me"
FREE: Final = frozenset({LOGIN, ME})
"""Routes for who has no token yet."""
_ROLES: Final = (Role.READ, Role.CONTROL)


class Login:
    """The routes, for an application that a guard stands before."""

    def __init__(self, guard: Guard, clock: Callable[[], float]) -> None:
        self._guard = guard
        self._throttle = Throttle(clock)

    def add_to(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_post(LOGIN, self._log_in)
        app.router.add_delete(LOGIN, self._log_out)
        app.router.add_get(ME, self._me)

    async def _log_in(self, request: web.Request) -> web.Response:
        only(request.query, frozenset())
        peer = request.remote or ""
        wait_s = self._throttle.wait_s(peer)
        if wait_s > 0:
            refused = problem(429, f"too many wrong tokens; wait {wait_s:.0f} s", None)
            refused.headers["Retry-After"] = str(int(wait_s) + 1)
            return refused
        token = await _token_in(request)
        roles = self._guard.tokens.roles_of(token) & set(_ROLES)
        if not roles:
            self._throttle.wrong(peer)
            raise BadRequest(401, "that is no token of role 'read' or 'control' of this collector")
        accepted = answer(200, _encoded([role.value for role in _ROLES if self._has(role, roles)]))
        accepted.set_cookie(
            cookie_of(request),
            kept_for(token),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return accepted

    def _has(self, role: Role, roles: frozenset[Role]) -> bool:
        """A token of `control` also reads, and so does everybody where reading takes none."""
        return role in roles or role is Role.READ

    async def _log_out(self, request: web.Request) -> web.Response:
        only(request.query, frozenset())
        done = answer(200, _encoded([]))
        done.del_cookie(cookie_of(request), path="/", httponly=True, samesite="Strict", secure=request.secure)
        return done

    async def _me(self, request: web.Request) -> web.Response:
        only(request.query, frozenset())
        return answer(200, _encoded([role.value for role in _ROLES if self._guard.may(role, request)]))


async def _token_in(request: web.Request) -> str:
    """The body; raises `BadRequest` where it cannot be a token."""
    data = await request.content.read(LONGEST_TOKEN + 1)
    while len(data) <= LONGEST_TOKEN and (more := await request.content.read(LONGEST_TOKEN + 1 - len(data))):
        data += more
    token = data.decode("utf-8", "replace").strip()
    if not token or len(data) > LONGEST_TOKEN:
        raise BadRequest(400, f"the body is the token, 1 to {LONGEST_TOKEN} characters of plain text")
    return token


def _encoded(roles: list[str]) -> bytes:
    return msgspec.json.encode({"roles": roles, "version": __version__})
