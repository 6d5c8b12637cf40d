"""Verifies a certificate with PyJWT, the keys straight from the cluster.

usage: verify_pyjwt.py JWKS_URL ISSUER TOKEN

Prints the claims as JSON; exits 1, with the reason on stderr, when it does not verify.
"""

import json
import sys

import jwt


def main() -> int:
    jwks_url, issuer, token = sys.argv[1:]
    try:
        key = jwt.PyJWKClient(jwks_url).get_signing_key_from_jwt(token)
        verified = jwt.decode_complete(
            token,
            key,
            algorithms=["EdDSA"],
            issuer=issuer,
            options={"require": ["iss", "iat", "exp", "jti", "fence"]},
        )
    except jwt.PyJWTError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if verified["header"]["typ"] != "epoch+jwt":
        print("typ is not epoch+jwt", file=sys.stderr)
        return 1
    print(json.dumps(verified["payload"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
