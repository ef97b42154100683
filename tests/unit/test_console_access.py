"""Rules of authentication that need no server."""

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from headway_cli.commands import headway
from headway_console.access.attempts import (
    Attempts,
    TooManyAttempts,
    address_of,
    read_networks,
)
from headway_console.access.issuer import check_oidc, read_roles
from headway_console.access.sessions import Cookies, Revoked, Seal, SigningIn
from headway_console.access.tokens import Rejected, Tokens, new_token, read_tokens, token_as_yaml
from headway_console.pages.shell import safe_path
from headway_console.settings import AuthMissing, ConsoleSettings, check_exposure, check_key
from headway_service_kit.settings import InvalidSettings

NOW = datetime(2027, 3, 1, tzinfo=UTC)


def settings(**given) -> ConsoleSettings:
    return ConsoleSettings(database_url="postgresql://", nats_url="nats://x", **given)


@pytest.mark.parametrize("address", ["0.0.0.0:8080", ":8080", "[::]:8080", "10.0.0.7:80", "box:80"])
def test_a_network_address_requires_authentication(address):
    with pytest.raises(AuthMissing, match="HEADWAY_API_TOKENS_FILE"):
        check_exposure(settings(console_address=address))
    check_exposure(settings(console_address=address, api_tokens_file="tokens.yaml"))
    check_exposure(settings(console_address=address, oidc_issuer="https://issuer"))


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "localhost:0", "[::1]:8080"])
def test_on_this_machine_alone_it_may(address):
    check_exposure(settings(console_address=address))


def test_a_key_that_could_be_guessed_is_refused():
    with pytest.raises(InvalidSettings, match="HEADWAY_SESSION_KEY"):
        check_key(settings(session_key="secret"))
    check_key(settings(session_key="x" * 32))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"oidc_issuer": "http://issuer"}, "not an https:// URL"),
        ({"oidc_issuer": "https://issuer"}, "HEADWAY_OIDC_AUDIENCE is not set"),
        (
            {"oidc_issuer": "https://issuer", "oidc_client_id": "x"},
            "HEADWAY_CONSOLE_URL is not set",
        ),
    ],
)
def test_settings_of_an_issuer_fit_together(given, complaint):
    with pytest.raises(InvalidSettings, match=complaint):
        check_oidc(settings(**given))


def test_roles_are_found_in_claims():
    rule = read_roles(settings(oidc_role_claim="realm.roles", oidc_roles="sre=admin, dev = viewer"))
    assert rule.role_of({"realm": {"roles": ["dev", "sre"]}}) == "admin"
    assert rule.role_of({"realm": {"roles": "dev"}}) == "viewer"
    assert rule.role_of({"realm": {"roles": ["operator"]}}) == "operator"
    for nothing in (
        {},
        {"realm": "sre"},
        {"realm": {"roles": [["sre"], 1, None]}},
        {"roles": "sre"},
    ):
        assert rule.role_of(nothing) is None
    with pytest.raises(InvalidSettings, match="invalid entry 'sre=boss'"):
        read_roles(settings(oidc_roles="sre=boss"))


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ("/runs?state=failed", "/runs?state=failed"),
        (None, "/"),
        ("https://evil.example", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
        ("javascript:alert(1)", "/"),
        ("/" * 3000, "/"),
    ],
)
def test_no_redirect_to_another_site_after_sign_in(given, to):
    assert safe_path(given) == to


def test_a_seal_is_for_one_purpose_and_for_a_time():
    seal = Seal(b"key")
    begun = SigningIn(
        state="s", nonce="n", verifier="v", next="/", until=NOW + timedelta(minutes=1)
    )
    sealed = seal.close("signing-in", begun)
    assert seal.open("signing-in", sealed, SigningIn, NOW) == begun
    assert seal.open("session", sealed, SigningIn, NOW) is None
    assert seal.open("signing-in", sealed, SigningIn, NOW + timedelta(minutes=1)) is None
    assert Seal(b"other").open("signing-in", sealed, SigningIn, NOW) is None
    for broken in ("", ".", "ä.ö", sealed[:-1], sealed + "x"):
        assert seal.open("signing-in", broken, SigningIn, NOW) is None


def test_cookies_are_bound_to_the_host_over_https_and_to_the_port_without():
    assert Cookies(secure=True, port=8080).name("session") == "__Host-headway"
    assert Cookies(secure=False, port=8080).name("session") == "headway-8080"


def test_names_and_pages_that_are_ours():
    local = settings(console_address="127.0.0.1:0")
    assert local.known_hosts(80) == {"127.0.0.1:80", "localhost:80", "[::1]:80"}
    assert "http://localhost:80" in local.known_origins(80)
    proxied = settings(console_address="0.0.0.0:8000", console_url="https://Headway.example.org/")
    assert proxied.known_hosts(8000) == frozenset()
    assert proxied.known_origins(8000) == {"https://headway.example.org"}


def test_a_token_file_is_reread_and_a_broken_file_admits_no_token(tmp_path):
    file = tmp_path / "tokens.yaml"
    first, entry = new_token("ada", "viewer")
    file.write_text(token_as_yaml(entry))
    tokens = Tokens(file)
    assert tokens.person(first, NOW).name == "ada"
    file.write_text("- name: [")
    with pytest.raises(Rejected, match="unknown token"):
        tokens.person(first, NOW)
    second, other = new_token("bob", "admin", NOW)
    file.write_text(token_as_yaml(other))
    with pytest.raises(Rejected, match="unknown token"):
        tokens.person(first, NOW)
    with pytest.raises(Rejected, match="'bob' expired at 2027-03-01"):
        tokens.person(second, NOW)
    assert tokens.person(second, NOW - timedelta(seconds=1)).role == "admin"


@pytest.mark.parametrize(
    "content",
    ["name: x", "- name: x\n  role: boss\n  sha256: " + "0" * 64, "- name: x\n  role: viewer", "{"],
)
def test_problems_of_a_token_file_are_reported(tmp_path, content):
    file = tmp_path / "tokens.yaml"
    file.write_text(content)
    with pytest.raises(
        InvalidSettings, match=r"HEADWAY_API_TOKENS_FILE.*'headway token new' prints"
    ):
        read_tokens(file)


def test_a_new_token_is_shown_once_and_its_entry_lets_it_in(tmp_path):
    done = CliRunner().invoke(headway, ["token", "new", "--name", "ci", "--role", "operator"])
    assert done.exit_code == 0, done.output
    token = done.stderr.rsplit(" ", 1)[-1].strip()
    assert token not in done.stdout
    file = tmp_path / "tokens.yaml"
    file.write_text(done.stdout)
    person = Tokens(file).person(token, NOW)
    assert (person.name, person.role) == ("ci", "operator")


class TestAttempts:
    def test_an_address_that_fails_too_often_waits_until_the_oldest_is_past(self):
        attempts = Attempts(per_address=3, in_all=100, within=60)
        for at in (0.0, 10.0, 20.0):
            attempts.begin("a", at)
        with pytest.raises(TooManyAttempts) as refused:
            attempts.begin("a", 30.0)
        assert refused.value.wait == 30
        attempts.begin("b", 30.0)
        attempts.begin("a", 60.0)
        with pytest.raises(TooManyAttempts):
            attempts.begin("a", 60.5)

    def test_the_total_and_the_memory_are_bounded(self):
        attempts = Attempts(per_address=3, in_all=5, within=60)
        for number in range(5):
            attempts.begin(f"a{number}", float(number))
        for number in range(100):
            with pytest.raises(TooManyAttempts) as refused:
                attempts.begin(f"b{number}", 10.0)
            assert refused.value.wait == 50
        assert len(attempts._failed) == 5
        attempts.begin("b", 60.5)

    def test_a_success_does_not_count_as_a_failure(self):
        attempts = Attempts(per_address=2)
        for at in range(50):
            attempts.begin("a", float(at))
            attempts.succeeded("a")
        attempts.begin("a", 50.0)
        attempts.begin("a", 50.0)
        with pytest.raises(TooManyAttempts):
            attempts.begin("a", 50.0)


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "found"),
    [
        ("10.0.0.7", "1.2.3.4", "", "10.0.0.7"),
        ("10.0.0.7", "1.2.3.4", "10.0.0.0/8", "1.2.3.4"),
        ("10.0.0.7", "6.6.6.6, 1.2.3.4, 10.0.0.9", "10.0.0.0/8", "1.2.3.4"),
        ("8.8.8.8", "1.2.3.4", "10.0.0.0/8", "8.8.8.8"),
        ("10.0.0.7", "", "10.0.0.0/8", "10.0.0.7"),
        ("10.0.0.7", "nonsense", "10.0.0.0/8, 192.168.0.1", "nonsense"),
        ("2001:db8::1:2", "", "", "2001:db8::/64"),
        ("::ffff:1.2.3.4", "", "", "1.2.3.4"),
        ("", "1.2.3.4", "10.0.0.0/8", ""),
    ],
)
def test_an_address_is_a_strangers_word_only_if_a_trusted_proxy_passes_it_on(
    peer, forwarded, trusted, found
):
    headers = {"x-forwarded-for": forwarded} if forwarded else {}
    assert address_of(peer, headers, read_networks(trusted)) == found


def test_a_proxy_that_is_no_address_is_refused():
    with pytest.raises(InvalidSettings, match="HEADWAY_TRUSTED_PROXIES"):
        read_networks("10.0.0.0/8, the-proxy")


def test_signed_out_sessions_are_remembered_until_they_would_end_and_not_without_bound():
    gone = Revoked(most=2)
    for number in range(3):
        gone.add(f"s{number}", until=NOW + timedelta(hours=number), now=NOW)
    assert [gone.has(f"s{number}") for number in range(3)] == [False, True, True]
