"""Authentication and roles of the console."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import pytest_asyncio
from headway_clock import utc_now
from headway_console.access.sessions import sign_in_path
from headway_console.access.tokens import Tokens, new_token, token_as_yaml
from headway_console.settings import ConsoleSettings
from headway_console.wiring import ConsoleService, console_application
from headway_contract.http import ROLES
from headway_service_kit.health import AddressInUse
from litestar import get
from litestar.routes import HTTPRoute
from support.consoles import LOCAL, Console, local_link, run_console
from support.issuer import CLIENT, SECRET, TestIssuer, run_issuer

from generators.openapi import document

API = "/api/v1"
ID = "0f0e7c1a-5b1f-4a8e-9c51-2d9d1c9f7e55"
IN_PATH = {"manifest": "no-such", "group": "no-such", "job": "no-such"}


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with run_issuer() as made:
        yield made


@pytest_asyncio.fixture
async def with_issuer(database_url, nats_url, tmp_path, issuer) -> AsyncIterator[Console]:
    """A console behind HTTPS that accepts JWTs."""
    async with run_console(
        database_url,
        nats_url,
        tmp_path,
        entries=(EXPIRED[1],),
        oidc_issuer=issuer.url,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_roles="sre=operator, boss=admin",
        console_url="https://headway.example.org",
    ) as made:
        yield made


EXPIRED = new_token("old", "admin", datetime(2020, 1, 1, tzinfo=UTC))


def unsigned(claims: dict) -> str:
    """Return a JWT with the algorithm `none`."""
    parts = [{"alg": "none", "typ": "JWT", "kid": "first"}, claims]
    made = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return (b".".join(made) + b".").decode()


def signed_by_secret(secret: bytes, claims: dict) -> str:
    """Return a JWT that is signed with a publicly known secret."""
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "first"}, claims]
    made = b".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts
    )
    digest = hmac.new(secret, made, hashlib.sha256).digest()
    return (made + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


def every_route() -> list[tuple[str, str, str]]:
    """Return method, path and role of every documented route, and of the document itself."""
    found = [("GET", f"{API}/openapi.json", "viewer")]
    for path, operations in document()["paths"].items():
        filled = re.sub(r"\{(\w+)\}", lambda name: IN_PATH.get(name[1], ID), path)
        found += [(m.upper(), filled, o["x-headway-role"]) for m, o in operations.items()]
    return found


async def open_response(
    client: httpx.AsyncClient, method: str, path: str, **sent
) -> httpx.Response:
    """Return the beginning of a response; some responses never end."""
    async with client.stream(method, path, **sent) as reply:
        return reply


async def test_every_route_requires_its_declared_role(with_issuer, issuer):
    good = {"iss": issuer.url, "aud": CLIENT, "sub": "1", "exp": 4e9, "roles": ["admin"]}
    strangers = {
        "no token": {},
        "a wrong token": {"Authorization": "Bearer headway_wrong"},
        "no bearer": {"Authorization": f"Basic {with_issuer.tokens['admin']}"},
        "an expired token": {"Authorization": f"Bearer {EXPIRED[0]}"},
        "alg none": {"Authorization": f"Bearer {unsigned(good)}"},
        "HS256 by the public key": {
            "Authorization": f"Bearer {signed_by_secret(issuer.public_pem(), good)}"
        },
        "an expired JWT": {
            "Authorization": f"Bearer {issuer.token(exp=datetime.now(UTC) - timedelta(hours=1))}"
        },
    }
    routes = every_route()
    assert len(routes) > 30
    async with with_issuer.browser() as client:
        for method, path, needed in routes:
            for called, headers in strangers.items():
                reply = await open_response(client, method, path, headers=headers)
                assert reply.status_code == 401, f"{called}: {method} {path}"
                assert reply.headers["www-authenticate"].startswith("Bearer")
            for role in ROLES:
                bearer = {"Authorization": f"Bearer {with_issuer.tokens[role]}"}
                # No route accepts this body: allowed users get 4xx, or 503 without a service.
                body = b"[" if method not in ("GET", "DELETE") else None
                reply = await open_response(client, method, path, headers=bearer, content=body)
                allowed = ROLES.index(role) >= ROLES.index(needed)
                assert (reply.status_code == 403) != allowed, f"{role}: {method} {path}"
                assert reply.status_code != 401
                assert reply.status_code < 500 or reply.status_code == 503


WRONG_JWTS = {
    "another audience": {"aud": "another"},
    "another issuer": {"iss": "https://evil.example"},
    "not valid yet": {"nbf": datetime(2099, 1, 1, tzinfo=UTC)},
    "without an end": {"exp": None},
    "without a subject": {"sub": None},
}


async def test_only_valid_jwts_are_accepted(with_issuer, issuer):
    async def ask(token: str) -> httpx.Response:
        async with with_issuer.browser() as client:
            return await client.get(f"{API}/me", headers={"Authorization": f"Bearer {token}"})

    reply = await ask(issuer.token())
    assert reply.json() == {"name": "eve@example.org", "role": "operator", "by": "oidc"}
    assert (await ask(issuer.token(roles=["boss", "sre"]))).json()["role"] == "admin"
    assert (await ask(issuer.token(roles="viewer"))).json()["role"] == "viewer"
    for called, claims in WRONG_JWTS.items():
        assert (await ask(issuer.token(**claims))).status_code == 401, called
    without_role = await ask(issuer.token(roles=["cook"]))
    assert (without_role.status_code, "has no role here" in without_role.json()["detail"]) == (
        403,
        True,
    )
    head, body, signature = issuer.token().split(".")
    assert (await ask(f"{head}.{body}.{signature[:-8]}AAAAAAAA")).status_code == 401


async def test_unknown_keys_are_fetched_again_at_a_limited_rate(with_issuer, issuer):
    from support.issuer import _new_key

    async with with_issuer.browser() as client:
        bearer = {"Authorization": f"Bearer {issuer.token()}"}
        for _ in range(3):
            assert (await client.get(f"{API}/me", headers=bearer)).status_code == 200
        assert issuer.keys_fetched == 1
        issuer.keys["second"] = _new_key()
        unknown = {"Authorization": f"Bearer {issuer.token(key='second')}"}
        for _ in range(3):
            assert (await client.get(f"{API}/me", headers=unknown)).status_code == 401
        assert issuer.keys_fetched == 1, (
            "the keys are fresh, so an unknown key id does not fetch them again"
        )
        with_issuer.service.issuer._tried_at -= 31
        assert (await client.get(f"{API}/me", headers=unknown)).status_code == 200
        assert issuer.keys_fetched == 2


async def test_people_sign_in_at_the_issuer(with_issuer, issuer):
    here = {"host": "headway.example.org"}
    async with with_issuer.browser(headers=here) as client:
        page = await client.get("/sign-in?next=/runs", headers={"accept": "text/html"})
        assert "/sign-in/oidc?next=/runs" in page.text
        begun = await client.get("/sign-in/oidc?next=/runs")
        query = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
        assert begun.headers["location"].startswith(f"{issuer.url}/authorize?")
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        assert query["redirect_uri"] == "https://headway.example.org/sign-in/oidc/back"
        cookie = begun.headers["set-cookie"]
        assert cookie.startswith("__Host-headway-signing-in=")
        carried = {"cookie": cookie.partition(";")[0]}
        back = urlsplit(issuer.grant(query))
        forged = await client.get(f"{back.path}?code=code-0&state=another", headers=carried)
        assert (forged.status_code, "does not match this sign-in" in forged.text) == (401, True)
        done = await client.get(f"{back.path}?{back.query}", headers=carried)
        assert (done.status_code, done.headers["location"]) == (303, "/runs")
        session = next(c for c in done.headers.get_list("set-cookie") if "signing-in" not in c)
        for word in ("__Host-headway=", "Secure", "HttpOnly", "SameSite=lax", "Path=/"):
            assert word in session
        assert "domain" not in session.lower()
        mine = {"cookie": session.partition(";")[0]}
        me = (await client.get(f"{API}/me", headers=mine)).json()
        assert me == {"name": "eve@example.org", "role": "operator", "by": "oidc"}
        again = await client.get(f"{back.path}?{back.query}", headers=carried)
        assert (again.status_code, "invalid_grant" in again.text) == (401, True)


async def test_a_session_ends_when_its_token_is_removed(console, tmp_path):
    ours = {"origin": console.url}
    async with console.browser() as client:
        stranger = await client.get("/", headers={"accept": "text/html"})
        assert (stranger.status_code, stranger.headers["location"]) == (303, "/sign-in?next=%2F")
        wrong = await client.post("/sign-in", data={"token": "wrong"}, headers=ours)
        assert (wrong.status_code, "unknown token" in wrong.text) == (401, True)
        form = {"token": console.tokens["operator"], "next": "//evil.example"}
        done = await client.post("/sign-in", data=form, headers=ours)
        assert (done.status_code, done.headers["location"]) == (303, "/")
        assert done.headers["set-cookie"].startswith(f"headway-{console.service.port}=")
        assert "Secure" not in done.headers["set-cookie"]
        assert "ada-operator" in (await client.get("/")).text
        file = tmp_path / "tokens.yaml"
        kept = [entry for entry in file.read_text().split("- ") if "ada-operator" not in entry]
        file.write_text("- ".join(kept))
        gone = await client.get(f"{API}/me")
        assert (gone.status_code, "unknown token" in gone.json()["detail"]) == (401, True)


async def test_failed_sign_ins_are_limited_and_sessions_continue(console):
    ours = {"origin": console.url}
    async with console.browser() as inside, console.browser() as client:
        await inside.get(local_link())
        for _ in range(5):
            assert (await client.post("/sign-in", data={"token": "x"}, headers=ours)).is_error
            assert (await client.get("/sign-in/local/wrong")).status_code == 401
        good = {"token": console.tokens["admin"]}
        # No proxy is trusted, so forwarded addresses are ignored.
        forwarded = {**ours, "x-forwarded-for": "203.0.113.9"}
        late = await client.post("/sign-in", data=good, headers=forwarded)
        assert (late.status_code, "try again in" in late.text) == (429, True)
        assert 1 <= int(late.headers["retry-after"]) <= 300
        assert (await client.get(local_link())).status_code == 429
        assert (await inside.get(f"{API}/me")).status_code == 200
    async with console.signed_in("viewer") as program:
        assert (await program.get(f"{API}/me")).status_code == 200


async def test_a_cookie_is_invalid_after_sign_out(console):
    async with console.browser() as client:
        await client.get(local_link())
        copy = dict(client.cookies)
        await client.post("/sign-out", headers={"origin": console.url})
    async with console.browser(cookies=copy) as thief:
        gone = await thief.get(f"{API}/me")
        assert (gone.status_code, "the session has ended" in gone.text) == (401, True)


async def test_a_tampered_cookie_is_refused(console):
    async with console.browser() as client:
        link = local_link()
        assert (await client.get(link)).headers["location"] == "/"
        [(name, value)] = client.cookies.items()
        me = (await client.get(f"{API}/me")).json()
        assert me == {"name": "me", "role": "admin", "by": "token"}
        assert (await client.get("/sign-in/local/another")).status_code == 401
    body, _, signature = value.rpartition(".")
    plain = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps({**plain, "name": "x"}).encode()).decode()
    for bad in (f"{other.rstrip('=')}.{signature}", f"{body}.", "x", f"{body}.{signature[:-3]}AAA"):
        async with console.browser(cookies={name: bad}) as client:
            assert (await client.get(f"{API}/me")).status_code == 401


async def test_a_local_sign_in_link_works_once_and_expires(console):
    link = local_link()
    old = sign_in_path(LOCAL.ticket_key, utc_now() - timedelta(minutes=11))
    foreign = sign_in_path("another key", utc_now())
    async with console.browser() as client:
        assert (await client.get(link)).status_code == 303
        for refused in (link, old, foreign):
            answer = await client.get(refused)
            assert (answer.status_code, "headway sign-in" in answer.text) == (401, True)


async def test_tokens_of_a_missing_or_broken_file_are_refused(console, tmp_path):
    file = tmp_path / "tokens.yaml"
    good = file.read_text()
    async with console.signed_in() as client:
        for broken in (None, "- {"):
            file.unlink() if broken is None else file.write_text(broken)
            assert (await client.get(f"{API}/me")).status_code == 401
            file.write_text(good)
            assert (await client.get(f"{API}/me")).status_code == 200


async def test_odd_paths_and_deep_bodies_are_refused(console):
    deep = "[" * 100_000 + "]" * 100_000
    body = f'{{"input": {deep}}}'
    async with console.signed_in() as client:
        for path in ("/static/%00", "/static/a%0ab", f"{API}/manifests/%00"):
            assert (await client.get(path)).status_code == 404
        answer = await client.post(f"{API}/jobs/j/enqueue", content=body)
        assert (answer.status_code, "nested too deeply" in answer.text) == (422, True)
        answer = await client.post(f"{API}/plan/yaml", json={"yaml": f"app: {deep}"})
        assert answer.status_code == 422, answer.text


async def test_cross_site_requests_are_refused(console, world):
    path = f"{API}/manifests/m"
    async with console.browser() as client:
        await client.get(local_link())
        page = (await client.get("/")).text
        token = re.search(r'"X-CSRF-Token": "([^"]+)"', page)[1]
        good = {"origin": console.url, "sec-fetch-site": "same-origin", "x-csrf-token": token}
        for changed in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"x-csrf-token": "wrong"},
            {"x-csrf-token": None},
            {"origin": None, "sec-fetch-site": None},
        ):
            headers = {n: v for n, v in {**good, **changed}.items() if v is not None}
            reply = await client.patch(path, json={"enabled": False}, headers=headers)
            assert reply.status_code == 403, changed
            assert reply.json()["type"] == "urn:headway:problem:forged"
        mine = await client.patch(path, json={"enabled": False}, headers=good)
        assert mine.status_code == 503, "accepted, but there is no scheduler"
        cross = await client.post("/sign-in", data={}, headers={"sec-fetch-site": "cross-site"})
        assert cross.status_code == 403
        out = await client.post("/sign-out", headers=good)
        assert (out.status_code, client.cookies) == (303, httpx.Cookies())


async def test_unknown_host_names_are_refused(console):
    async with console.signed_in() as client:
        for host in ("evil.example", f"evil.example:{console.service.port}", "127.0.0.1:1"):
            reply = await client.get(f"{API}/me", headers={"host": host})
            assert (reply.status_code, reply.json()["status"]) == (421, 421)
        named = {"host": f"localhost:{console.service.port}"}
        assert (await client.get(f"{API}/me", headers=named)).status_code == 200


async def test_every_response_has_security_headers(console):
    async with console.browser() as client:
        for path in ("/", "/sign-in", "/nothing", f"{API}/me", "/static/headway.css"):
            headers = (await client.get(path, headers={"accept": "text/html"})).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "server" not in headers
        assert (await client.get(f"{API}/me")).headers["cache-control"] == "no-store"
        page = (await client.get("/sign-in")).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", page)
        linked = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
        assert len(linked) >= 4
        for path in linked:
            assert (await client.get(path)).status_code == 200, path


async def test_every_route_declares_a_role(console):
    settings = ConsoleSettings(database_url="", nats_url="")
    app = console_application(settings, console.service, Tokens(None))
    declared = {
        (route.path, method): handler.opt.get("role")
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in handler.http_methods - {"OPTIONS"}
    }
    assert len(declared) > 90
    assert set(declared.values()) == {"viewer", "operator", "admin", "anyone"}


async def test_a_route_without_a_role_is_refused(console):
    @get("/open", sync_to_thread=False)
    def undeclared() -> str:
        return "ok"

    settings = ConsoleSettings(database_url="", nats_url="")
    token, entry = new_token("ada", "admin")
    service = ConsoleService(console.service.database, console.service.broker)
    app = console_application(settings, service, Tokens(None, (entry,)))
    app.register(undeclared)
    options = {"base_url": "http://c", "headers": {"Authorization": f"Bearer {token}"}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), **options) as web:
        assert (await web.get("/open")).status_code == 403
        assert (await web.get(f"{API}/me")).status_code == 200


async def test_a_port_in_use_is_reported(console, database_url, nats_url, tmp_path):
    taken = f"127.0.0.1:{console.service.port}"
    with pytest.raises(AddressInUse, match="HEADWAY_CONSOLE_ADDRESS"):
        async with run_console(database_url, nats_url, tmp_path, console_address=taken):
            pass


def test_a_token_is_not_stored():
    token, entry = new_token("bot", "operator")
    assert token.removeprefix("headway_") not in token_as_yaml(entry)
    assert len(token) > 40
