"""Verifies a certificate with jwcrypto, the keys straight from the cluster.

usage: verify_jwcrypto.py JWKS_URL ISSUER TOKEN

Prints the claims as JSON; exits 1, with the reason on stderr, when it does not verify.
"""

import json
import sys
import urllib.request

from jwcrypto import jwk, jws, jwt
from jwcrypto.common import JWException


def main() -> int:
    jwks_url, issuer, token = sys.argv[1:]
    with urllib.request.urlopen(jwks_url) as answer:
        keys = jwk.JWKSet.from_json(answer.read().decode())
    try:
        parsed = jws.JWS()
        parsed.deserialize(token)
        key = keys.get_key(parsed.jose_header.get("kid"))
        if key is None:
            raise JWException("no key of that kid")
        verified = jwt.JWT(
            jwt=token,
            key=key,
            algs=["EdDSA"],
            check_claims={"iss": issuer, "iat": None, "exp": None, "jti": None, "fence": None},
        )
    except (JWException, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if json.loads(verified.header)["typ"] != "epoch+jwt":
        print("typ is not epoch+jwt", file=sys.stderr)
        return 1
    print(verified.claims)
    return 0


if __name__ == "__main__":
    sys.exit(main())
