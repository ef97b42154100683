"""Sign-in with a token or at an OIDC issuer, and sign-out."""

import hmac
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from headway_clock import monotonic, new_secret, utc_now
from litestar import Response, get, post

from headway_console.access.attempts import TooManyAttempts
from headway_console.access.authentication import Authenticator
from headway_console.access.guards import check_origin, open_to_anyone
from headway_console.access.issuer import Issuer, IssuerUnavailable, challenge_of, redirect_url
from headway_console.access.roles import Person
from headway_console.access.sessions import SIGN_IN_LASTS, SigningIn
from headway_console.access.tokens import Rejected
from headway_console.pages.shell import redirect, safe_path, show
from headway_console.services import HttpRequest
from headway_console.settings import ConsoleSettings

_SIGNING_IN = "signing-in"


@get("/sign-in", opt=open_to_anyone(), sync_to_thread=False)
def sign_in_page(request: HttpRequest) -> Response[Any]:
    """Show the sign-in form."""
    to = safe_path(request.query_params.get("next"))
    if request.scope.get("user") is not None:
        return redirect(to)
    return _ask(request, to)


@post("/sign-in", opt=open_to_anyone())
async def sign_in(request: HttpRequest) -> Response[Any]:
    """Start a session with a token."""
    check_origin(request.headers, request.app.state.origins)
    form = await request.form()
    to, token = safe_path(form.get("next")), str(form.get("token", "")).strip()

    async def authenticate() -> Person:
        authenticator: Authenticator = request.app.state.authenticator
        return authenticator.tokens.person(token, utc_now())

    return await _sign_in(request, to, authenticate, token=token)


@get("/sign-in/local/{ticket:str}", opt=open_to_anyone())
async def sign_in_local(request: HttpRequest) -> Response[Any]:
    """Start a session with a single-use link."""
    authenticator: Authenticator = request.app.state.authenticator
    local, ticket = authenticator.local, str(request.path_params["ticket"])

    async def authenticate() -> Person:
        if local is None or not local.redeem(ticket, utc_now()):
            raise Rejected("this link is no longer valid: 'headway sign-in' prints a new one")
        return authenticator.tokens.person(local.token, utc_now())

    return await _sign_in(request, "/", authenticate, token=local.token if local else "")


@get("/sign-in/oidc", opt=open_to_anyone())
async def sign_in_at_issuer(request: HttpRequest) -> Response[Any]:
    """Redirect to the issuer, with state, nonce and PKCE challenge."""
    settings, issuer = _oidc(request)
    if issuer is None:
        return _ask(request, "/", trouble="no OIDC issuer is configured")
    begun = SigningIn(
        state=new_secret(),
        nonce=new_secret(),
        verifier=new_secret(),
        next=safe_path(request.query_params.get("next")),
        until=utc_now() + SIGN_IN_LASTS,
    )
    try:
        endpoint = (await issuer.discover()).authorization_endpoint
    except IssuerUnavailable as error:
        return _ask(request, begun.next, trouble=f"the issuer does not answer: {error}")
    query = {
        "response_type": "code",
        "client_id": settings.oidc_client_id or "",
        "redirect_uri": redirect_url(settings),
        "scope": settings.oidc_scopes,
        "state": begun.state,
        "nonce": begun.nonce,
        "code_challenge": challenge_of(begun.verifier),
        "code_challenge_method": "S256",
    }
    authenticator: Authenticator = request.app.state.authenticator
    answer = redirect(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}")
    sealed = authenticator.seal.close(_SIGNING_IN, begun)
    answer.set_cookie(authenticator.cookies.make("signing-in", sealed, SIGN_IN_LASTS))
    return answer


@get("/sign-in/oidc/back", opt=open_to_anyone())
async def back_from_issuer(request: HttpRequest) -> Response[Any]:
    """Start a session after the redirect from the issuer."""
    authenticator: Authenticator = request.app.state.authenticator
    cookies = authenticator.cookies
    cookie = request.cookies.get(cookies.name("signing-in"), "")
    begun = authenticator.seal.open(_SIGNING_IN, cookie, SigningIn, utc_now())
    if begun is None:
        return _ask(request, "/", trouble="the sign-in expired, or started in another browser")
    answer = await _sign_in(request, begun.next, partial(_person_of, request, begun))
    if answer.status_code == 303:
        answer.set_cookie(cookies.make("signing-in"))
    return answer


@post("/sign-out", opt=open_to_anyone(), sync_to_thread=False)
def sign_out(request: HttpRequest) -> Response[Any]:
    """End the session."""
    check_origin(request.headers, request.app.state.origins)
    authenticator: Authenticator = request.app.state.authenticator
    cookies = authenticator.cookies
    authenticator.end_session(request.cookies.get(cookies.name("session"), ""))
    answer = redirect("/sign-in")
    answer.set_cookie(cookies.make("session"))
    return answer


async def _person_of(request: HttpRequest, begun: SigningIn) -> Person:
    """Verify the redirect and return the person; raises `Rejected`."""
    settings, issuer = _oidc(request)
    query = request.query_params
    if issuer is None:
        raise Rejected("no OIDC issuer is configured")
    if not hmac.compare_digest(begun.state.encode(), str(query.get("state", "")).encode()):
        raise Rejected("the state does not match this sign-in")
    if query.get("error"):
        raise Rejected(
            f"the issuer reported: {query['error']} {query.get('error_description', '')}"
        )
    if query.get("iss") not in (None, (await issuer.discover()).issuer):
        raise Rejected("the redirect comes from another issuer")
    token = await issuer.exchange(
        str(query.get("code", "")), verifier=begun.verifier, settings=settings
    )
    claims = await issuer.claims(token, audience=settings.oidc_client_id or "")
    if not hmac.compare_digest(begun.nonce.encode(), str(claims.get("nonce", "")).encode()):
        raise Rejected("the id token belongs to another sign-in")
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator.person_of(claims)


async def _sign_in(
    request: HttpRequest, to: str, authenticate: Callable[[], Awaitable[Person]], *, token: str = ""
) -> Response[Any]:
    """Authenticate a person unless too many attempts failed, and start their session."""
    authenticator: Authenticator = request.app.state.authenticator
    try:
        address = authenticator.begin_attempt(request, monotonic())
        person = await authenticate()
    except (Rejected, TooManyAttempts) as error:
        return _ask(request, to, trouble=error)
    except IssuerUnavailable as error:
        return _ask(request, to, trouble=f"the issuer does not answer: {error}")
    authenticator.attempts.succeeded(address)
    lasts = timedelta(seconds=authenticator.session_seconds)
    sealed = authenticator.begin_session(person, token=token, until=utc_now() + lasts)
    answer = redirect(to)
    answer.set_cookie(authenticator.cookies.make("session", sealed, lasts))
    return answer


def _ask(request: HttpRequest, to: str, *, trouble: str | Exception = "") -> Response[Any]:
    settings, issuer = _oidc(request)
    wait = trouble.wait if isinstance(trouble, TooManyAttempts) else None
    answer = show(
        request,
        "sign_in.html",
        status=429 if wait else 401 if trouble else 200,
        next=to,
        trouble=str(trouble),
        with_issuer=issuer is not None,
        with_tokens=request.app.state.authenticator.local is not None or settings.api_tokens_file,
    )
    if wait:
        answer.headers["Retry-After"] = str(wait)
    return answer


def _oidc(request: HttpRequest) -> tuple[ConsoleSettings, Issuer | None]:
    """Return the settings, and the issuer if people may sign in there."""
    settings: ConsoleSettings = request.app.state.settings
    return settings, request.app.state.authenticator.issuer if settings.oidc_client_id else None
