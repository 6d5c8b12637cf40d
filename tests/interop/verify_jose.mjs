// Verifies a certificate with jose, the keys straight from the cluster.
//
// usage: node verify_jose.mjs JWKS_URL ISSUER TOKEN
//
// Prints the claims as JSON; exits 1, with the reason on stderr, when it does not verify.
import { createRemoteJWKSet, errors, jwtVerify } from 'jose';

const [jwksUrl, issuer, token] = process.argv.slice(2);

try {
  const { payload } = await jwtVerify(token, createRemoteJWKSet(new URL(jwksUrl)), {
    algorithms: ['EdDSA'],
    issuer,
    requiredClaims: ['iat', 'exp', 'jti', 'fence'],
    typ: 'epoch+jwt',
  });
  console.log(JSON.stringify(payload));
} catch (error) {
  if (!(error instanceof errors.JOSEError)) throw error;
  console.error(`${error.name}: ${error.message}`);
  process.exitCode = 1;
}
