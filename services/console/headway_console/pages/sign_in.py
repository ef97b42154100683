"""Sign-in with a token or at an OIDC issuer, and sign-out."""

import hmac
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from headway_clock import monotonic, new_secret, utc_now
from litestar import Request, Response, get, post
from litestar.datastructures import Cookie

from headway_console.access.attempts import TooManyAttempts
from headway_console.access.authentication import Authenticator
from headway_console.access.csrf import check_origin
from headway_console.access.guards import open_to_anyone
from headway_console.access.issuer import Issuer, IssuerUnavailable, challenge_of, redirect_url
from headway_console.access.roles import Person
from headway_console.access.sessions import SIGNING_IN_LASTS, SigningIn
from headway_console.access.tokens import Rejected
from headway_console.pages.flash import safe_path
from headway_console.pages.shell import show
from headway_console.settings import ConsoleSettings

_SIGNING_IN = "signing-in"


@get("/sign-in", opt=open_to_anyone(), sync_to_thread=False)
def sign_in_page(request: Request[Any, Any, Any]) -> Response[Any]:
    """Show the sign-in form."""
    to = safe_path(request.query_params.get("next"))
    if request.scope.get("user") is not None:
        return _go_to(to)
    return _ask(request, to)


@post("/sign-in", opt=open_to_anyone())
async def sign_in(request: Request[Any, Any, Any]) -> Response[Any]:
    """Start a session with a token."""
    check_origin(request.headers, request.app.state.origins)
    form = await request.form()
    to, token = safe_path(form.get("next")), str(form.get("token", "")).strip()
    authenticator: Authenticator = request.app.state.authenticator
    try:
        address = authenticator.begin_attempt(request, monotonic())
        person = authenticator.tokens.person(token, utc_now())
    except (Rejected, TooManyAttempts) as error:
        return _ask(request, to, trouble=error)
    authenticator.attempts.succeeded(address)
    return _signed_in(request, person, to, token=token)


@get("/sign-in/local/{ticket:str}", opt=open_to_anyone(), sync_to_thread=False)
def sign_in_local(request: Request[Any, Any, Any]) -> Response[Any]:
    """Start a session with a single-use link."""
    authenticator: Authenticator = request.app.state.authenticator
    local, ticket = authenticator.local, str(request.path_params["ticket"])
    try:
        address = authenticator.begin_attempt(request, monotonic())
    except TooManyAttempts as error:
        return _ask(request, "/", trouble=error)
    if local is None or not local.tickets.redeem(ticket, utc_now()):
        return _ask(
            request, "/", trouble="this link is no longer valid: 'headway sign-in' prints a new one"
        )
    authenticator.attempts.succeeded(address)
    person = authenticator.tokens.person(local.token, utc_now())
    return _signed_in(request, person, "/", token=local.token)


@get("/sign-in/oidc", opt=open_to_anyone())
async def sign_in_at_issuer(request: Request[Any, Any, Any]) -> Response[Any]:
    """Redirect to the issuer, with state, nonce and PKCE challenge."""
    settings, issuer = _oidc(request)
    if issuer is None:
        return _ask(request, "/", trouble="no OIDC issuer is configured")
    begun = SigningIn(
        state=new_secret(),
        nonce=new_secret(),
        verifier=new_secret(),
        next=safe_path(request.query_params.get("next")),
        until=utc_now() + SIGNING_IN_LASTS,
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
    answer = _go_to(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}")
    sealed = authenticator.seal.close(_SIGNING_IN, begun)
    answer.set_cookie(_cookie(request, authenticator.cookies.signing_in, sealed, SIGNING_IN_LASTS))
    return answer


@get("/sign-in/oidc/back", opt=open_to_anyone())
async def back_from_issuer(request: Request[Any, Any, Any]) -> Response[Any]:
    """Start a session after the redirect from the issuer."""
    authenticator: Authenticator = request.app.state.authenticator
    cookie = request.cookies.get(authenticator.cookies.signing_in, "")
    begun = authenticator.seal.open(_SIGNING_IN, cookie, SigningIn, utc_now())
    if begun is None:
        return _ask(request, "/", trouble="the sign-in expired, or started in another browser")
    try:
        address = authenticator.begin_attempt(request, monotonic())
        person = await _person_of(request, begun)
    except (Rejected, TooManyAttempts) as error:
        return _ask(request, begun.next, trouble=error)
    except IssuerUnavailable as error:
        return _ask(request, begun.next, trouble=f"the issuer does not answer: {error}")
    authenticator.attempts.succeeded(address)
    answer = _signed_in(request, person, begun.next)
    answer.set_cookie(_cookie(request, authenticator.cookies.signing_in, "", timedelta(0)))
    return answer


@post("/sign-out", opt=open_to_anyone(), sync_to_thread=False)
def sign_out(request: Request[Any, Any, Any]) -> Response[Any]:
    """End the session."""
    check_origin(request.headers, request.app.state.origins)
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.end_session(request.cookies.get(authenticator.cookies.session, ""))
    answer = _go_to("/sign-in")
    answer.set_cookie(_cookie(request, authenticator.cookies.session, "", timedelta(0)))
    return answer


async def _person_of(request: Request[Any, Any, Any], begun: SigningIn) -> Person:
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


def _signed_in(
    request: Request[Any, Any, Any], person: Person, to: str, *, token: str = ""
) -> Response[Any]:
    authenticator: Authenticator = request.app.state.authenticator
    lasts = timedelta(seconds=authenticator.session_seconds)
    sealed = authenticator.begin_session(person, token=token, until=utc_now() + lasts)
    answer = _go_to(to)
    answer.set_cookie(_cookie(request, authenticator.cookies.session, sealed, lasts))
    return answer


def _cookie(request: Request[Any, Any, Any], name: str, value: str, lasts: timedelta) -> Cookie:
    authenticator: Authenticator = request.app.state.authenticator
    return Cookie(
        key=name,
        value=value,
        path="/",
        secure=authenticator.cookies.secure,
        httponly=True,
        samesite="lax",
        max_age=int(lasts.total_seconds()),
    )


def _ask(
    request: Request[Any, Any, Any], to: str, *, trouble: str | Exception = ""
) -> Response[Any]:
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


def _oidc(request: Request[Any, Any, Any]) -> tuple[ConsoleSettings, Issuer | None]:
    """Return the settings, and the issuer if people may sign in there."""
    settings: ConsoleSettings = request.app.state.settings
    authenticator: Authenticator = request.app.state.authenticator
    return settings, authenticator.issuer if settings.oidc_client_id else None


def _go_to(url: str) -> Response[Any]:
    return Response("", status_code=303, media_type="text/plain", headers={"Location": url})


HANDLERS = [
    sign_in_page,
    sign_in,
    sign_in_local,
    sign_in_at_issuer,
    back_from_issuer,
    sign_out,
]
