"""Checks a holder's proof (DPoP, RFC 9449) for one request with PyJWT.

usage: verify_dpop.py METHOD URL CERTIFICATE PROOF

The certificate must have been verified before; only its `cnf` is read here. Exits 1, with the
reason on stderr, when the proof does not hold. A resource also remembers each `jti` for as long as
it takes proofs of that age, and refuses it the second time.
"""

import base64
import hashlib
import json
import sys

import jwt

AGE_MAX_S = 60


def encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def check(method: str, url: str, certificate: str, proof: str) -> None:
    header = jwt.get_unverified_header(proof)
    if header["typ"] != "dpop+jwt":
        raise ValueError("typ is not dpop+jwt")
    key = header["jwk"]
    members = json.dumps({name: key[name] for name in ("crv", "kty", "x")}, separators=(",", ":"))
    thumbprint = encoded(hashlib.sha256(members.encode()).digest())
    bound = jwt.decode(certificate, options={"verify_signature": False})["cnf"]["jkt"]
    if thumbprint != bound:
        raise ValueError("the certificate is bound to another key")
    claims = jwt.decode(
        proof,
        jwt.PyJWK(key, algorithm="EdDSA"),
        algorithms=["EdDSA"],
        leeway=AGE_MAX_S,
        options={"require": ["iat", "jti", "htm", "htu", "ath"], "verify_exp": False},
    )
    of_this = encoded(hashlib.sha256(certificate.encode()).digest())
    if (claims["htm"], claims["htu"], claims["ath"]) != (method, url, of_this):
        raise ValueError("the proof is for another request")


def main() -> int:
    try:
        check(*sys.argv[1:])
    except (jwt.PyJWTError, KeyError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
