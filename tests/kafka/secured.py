"""A broker as companies run it: SASL and client certificates over TLS, and nobody has a right that no ACL gives."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID
from kafka_broker import Broker

import exhaustive
from kafka.witness import Witness
from patience import HUNG_SECONDS, wait_until

PASSWORD = "geheim-9f2c"
AUDIENCE = "kafka"
SECURITY = "org.apache.kafka.common.security"
# Each runs a test twice: on a plain broker, and logged in over TLS, the second one mostly in exhaustive runs alone.
PLAIN_AND_SECURED = pytest.mark.parametrize("security", ["plain", "secured"], indirect=True)
MOSTLY_PLAIN = pytest.mark.parametrize("security", ["plain", exhaustive.only("secured")], indirect=True)
ANYTHING = ["topic", "group", "transactional id"]
_PEM = serialization.Encoding.PEM
_PLAIN_KEY = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()


class Right(NamedTuple):
    """`kind` is topic, group or transactional id."""

    operation: str
    kind: str
    name: str


class Secured(Witness):
    """The broker, asked by one who may do all."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        super().__init__(broker.address)
        self.broker = broker
        self._folder = folder
        self._users = 0

    def secured_url(self, topic: str, protocol: str = "SASL_SSL") -> str:
        return f"kafka://{self.secured_address(protocol)}/{topic}"

    def secured_address(self, protocol: str = "SASL_SSL") -> str:
        return self.broker.address_of(protocol)

    # --- Users ------------------------------------------------------------------------------------------------------

    def user(self, rights: Iterable[Right], *, prefixed: bool = False) -> dict[str, str]:
        """The settings of a new user, who logs in with SCRAM and has these rights."""
        self._users += 1
        name = f"user{self._users}"
        self.allow(name, rights, prefixed=prefixed)
        set_password(self, name, PASSWORD)
        settings = login_of(self._folder, name)
        # The broker hears of the user after it has heard of the rights.
        wait_until(lambda: self._can_log_in(settings))
        return settings

    def _can_log_in(self, settings: dict[str, str]) -> bool:
        try:
            servers = {"bootstrap.servers": self.broker.address_of("SASL_SSL"), "log_level": 0}
            AdminClient({**settings, **servers}).list_topics(timeout=5)
        except KafkaException:
            return False
        return True

    def deny(self, user: str, right: Right) -> None:
        """Wins over any right to the same."""
        self.allow(user, [right], permission=AclPermissionType.DENY)

    def allow(
        self,
        user: str,
        rights: Iterable[Right],
        *,
        prefixed: bool = False,
        permission: AclPermissionType = AclPermissionType.ALLOW,
    ) -> None:
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        rules = [
            AclBinding(
                ResourceType[right.kind.replace(" ", "_").upper()],
                right.name,
                pattern,
                f"User:{user}",
                "*",
                AclOperation[right.operation.upper()],
                permission,
            )
            for right in rights
        ]
        for future in self.admin.create_acls(rules).values() if rules else ():
            future.result(HUNG_SECONDS)

    # --- Other ways to log in ---------------------------------------------------------------------------------------

    def trust(self) -> dict[str, str]:
        return {"ssl.ca.location": str(self._folder / "ca.pem")}

    def with_certificate(self, name: str) -> dict[str, str]:
        """The settings of a client whose certificate has this name. Its key has a password."""
        make_certificate(self._folder, name, password=PASSWORD)
        return {
            **self.trust(),
            "security.protocol": "SSL",
            "ssl.certificate.location": str(self._folder / f"{name}.pem"),
            "ssl.key.location": str(self._folder / f"{name}.key"),
            "ssl.key.password": PASSWORD,
        }

    def with_tokens(self, name: str, tokens: str) -> dict[str, str]:
        """The settings of a client that gets tokens at this address."""
        return {
            **self.trust(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": name,
            "sasl.oauthbearer.client.secret": PASSWORD,
            "sasl.oauthbearer.token.endpoint.url": tokens,
        }


def tls_and_scram(folder: Path) -> dict[str, str]:
    """The settings of a broker with a listener SASL_SSL, whose certificates are in the folder."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker-all.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
    }


def make_certificates(folder: Path) -> None:
    make_authority(folder)
    make_certificate(folder, "broker")
    join_key_and_certificate(folder)


def login_of(folder: Path, user: str) -> dict[str, str]:
    """The settings of a user who logs in with SCRAM."""
    return {
        "ssl.ca.location": str(folder / "ca.pem"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


@contextmanager
def started(folder: Path, more: Mapping[str, str] = {}, session_seconds: float = 3600) -> Iterator[Secured]:
    """more: settings of the broker. session_seconds: less for one that is killed."""
    make_certificates(folder)
    (folder / "jwks.json").write_text(json.dumps({"keys": [_public_key(folder)]}))
    oauth = "listener.name.sasl_ssl.oauthbearer.sasl"
    settings = {
        **tls_and_scram(folder),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^CN=(.*?)$/$1/",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        f"{oauth}.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        f"{oauth}.server.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{oauth}.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
        f"{oauth}.oauthbearer.expected.audience": AUDIENCE,
        **more,
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(folder / 'jwks.json').as_uri()}"
    how: dict[str, Any] = {"settings": settings, "listeners": ["SASL_SSL", "SSL"], "jvm": [allowed]}
    with Broker(folder / "data", session_seconds=session_seconds, **how) as broker:
        yield Secured(broker, folder)


def join_key_and_certificate(folder: Path) -> None:
    """Writes the file that the broker reads when it starts."""
    (folder / "broker-all.pem").write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())


def set_password(witness: Witness, user: str, password: str) -> None:
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(user, mechanism, password.encode())
    for future in witness.admin.alter_user_scram_credentials([upsertion]).values():
        future.result(HUNG_SECONDS)


# --- Certificates ---------------------------------------------------------------------------------------------------


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: str, issuer: str, public: Any, key: Any, extensions: Iterable[Any]) -> bytes:
    now = datetime.datetime.now(datetime.timezone.utc)
    built = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer)).public_key(public)
    built = built.serial_number(x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
    for extension in extensions:
        built = built.add_extension(extension, critical=False)
    return built.sign(key, hashes.SHA256()).public_bytes(_PEM)


def _new_key() -> Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def make_authority(folder: Path) -> None:
    key = _new_key()
    (folder / "ca.key").write_bytes(key.private_bytes(_PEM, *_PLAIN_KEY))
    ours = x509.BasicConstraints(ca=True, path_length=None)
    (folder / "ca.pem").write_bytes(_certificate("authority", "authority", key.public_key(), key, [ours]))


def _authority(folder: Path) -> Any:
    return serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)


def make_certificate(folder: Path, name: str, password: str = "") -> None:
    key = _new_key()
    locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, locked))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    (folder / f"{name}.pem").write_bytes(_certificate(name, "authority", key.public_key(), _authority(folder), [here]))


# --- Tokens ---------------------------------------------------------------------------------------------------------


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _public_key(folder: Path) -> dict[str, str]:
    numbers = _authority(folder).public_key().public_numbers()
    found = {name: _base64(value.to_bytes(-(-value.bit_length() // 8))) for name, value in (("n", numbers.n), ("e", numbers.e))}
    return {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", **found}


def _token(folder: Path, subject: str) -> str:
    now = int(time.time())
    claims = {"sub": subject, "aud": AUDIENCE, "iat": now, "exp": now + 300, "iss": "tests", "scope": "kafka"}
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims)]
    signed = _authority(folder).sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
    return ".".join([*parts, _base64(signed)])


@contextmanager
def token_server(folder: Path) -> Iterator[str]:
    """Serves OIDC's token endpoint. It gives a token to everybody who knows the secret."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
            user, _, secret = base64.b64decode(encoded).decode().partition(":") if scheme == "Basic" else ("", "", "")
            is_right = secret == PASSWORD and sent.get("grant_type") == ["client_credentials"]
            told = {"access_token": _token(folder, user), "token_type": "Bearer", "expires_in": 300} if is_right else {}
            body = json.dumps(told or {"error": "invalid_client"}).encode()
            self.send_response(200 if is_right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
