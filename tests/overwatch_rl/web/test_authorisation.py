"""Who may call the server."""

import pytest

from overwatch_rl.web.authorisation import AGAIN_S, MOST_WRONG, Authorisation, Throttle

TOKEN = "a-long-enough-token"  # noqa: S105 of the test


def status(guard: Authorisation, **headers: str) -> int | None:
    """What a request with these headers is refused with."""
    denied = guard.denied({"Host": "127.0.0.1:8000", **headers})
    return None if denied is None else denied.status


def test_an_address_others_can_reach_needs_a_token() -> None:
    """The error names the address and both fixes."""
    with pytest.raises(
        ValueError, match=r"'0\.0\.0\.0' can be reached .* --token-file, or bind 127\.0\.0\.1"
    ):
        Authorisation("0.0.0.0", None)

    assert status(Authorisation("0.0.0.0", TOKEN), Authorization=f"Bearer {TOKEN}") is None


@pytest.mark.parametrize("token", ["short", "with a\nline break in it", "ümlaut-ümlaut-ümlaut"])
def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    """Before anything is bound."""
    with pytest.raises(ValueError, match="the token is too short or has odd characters"):
        Authorisation("127.0.0.1", token)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"Bearer {TOKEN}", None),
        (f"bearer  {TOKEN} ", None),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer ümlaut", 401),
        ("", 401),
    ],
)
def test_the_token_is_asked_for(header: str, found: int | None) -> None:
    """By the scheme bearer alone."""
    assert status(Authorisation("127.0.0.1", TOKEN), Authorization=header) == found


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("localhost:8000", None),
        ("[::1]:8000", None),
        ("127.0.0.1", None),
        ("evil.example:8000", 403),
        ("", 403),
    ],
)
def test_without_a_token_only_names_of_this_machine_are_served(host: str, found: int | None) -> None:
    """A page whose name was rebound to this machine sends its own name."""
    assert status(Authorisation("127.0.0.1", None), Host=host) == found


def test_a_page_of_another_origin_is_refused() -> None:
    """Whatever token it has; the server's own pages are not."""
    guard = Authorisation("127.0.0.1", TOKEN)
    token = f"Bearer {TOKEN}"

    assert status(guard, Authorization=token, Origin="https://evil.example") == 403
    assert status(guard, Authorization=token, Origin="null") == 403
    assert status(guard, Authorization=token, Origin="http://127.0.0.1:8000") is None


def test_each_role_has_a_token_of_its_own() -> None:
    """Whose token a request has is known; two roles never share one."""
    tokens = {"operator": "operator-token-0123", "reader": "reader-token-012345"}
    guard = Authorisation("0.0.0.0", tokens)

    for role, token in tokens.items():
        assert guard.role({"Host": "x", "Authorization": f"Bearer {token}"}) == role
    assert status(guard, Authorization="Bearer nobody-has-this-one") == 401
    assert status(guard) == 401
    assert Authorisation("127.0.0.1", {}).role({"Host": "localhost"}) is None
    with pytest.raises(ValueError, match="two of operator, reader have the same token; use one for each"):
        Authorisation("127.0.0.1", dict.fromkeys(tokens, TOKEN))


def test_a_peer_that_guesses_has_to_wait() -> None:
    """Another does not; who repeats one wrong token guesses nothing; time forgets."""
    now = [0.0]
    throttle = Throttle(lambda: now[0])

    assert [throttle.wrong("a", "same") for _ in range(9)] == [0.0] * 9
    waits = [throttle.wrong("a", f"guess-{number}") for number in range(MOST_WRONG + 1)]
    assert waits == [0.0] * (MOST_WRONG - 1) + [AGAIN_S] * 2
    assert throttle.wrong("a", "same") == throttle.wrong("b", "guess") == 0.0
    now[0] = AGAIN_S
    assert throttle.wrong("a", "guess-9") == 0.0
