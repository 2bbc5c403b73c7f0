import type { Configuration } from 'openid-client';
import { AppError } from '../runtime/errors.ts';

/** An OpenID Connect provider, and how its users become users of the console. */
export interface OidcSettings {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string | undefined;
  /** The claim that is the name of a user. */
  readonly claim: string;
  /** Account in which unknown users are created; undefined: they are refused. */
  readonly newUsersAccount: number | undefined;
  /** The public address of the callback. */
  readonly callbackUrl: string;
}

/** Values that the browser keeps from the start of a sign-in to its callback. */
export interface OidcAttempt {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

export interface OidcClient {
  /** Begins a sign-in: the address of the provider, and what the callback needs. */
  begin(): Promise<{ readonly url: string; readonly attempt: OidcAttempt }>;
  /** Ends a sign-in: checks state, nonce, PKCE and the ID token; returns its claims. */
  finish(search: string, attempt: OidcAttempt): Promise<Readonly<Record<string, unknown>>>;
}

/** Timeout of a request to the provider, s. */
const timeoutSeconds = 10;

/**
 * Creates the client of a provider. The first sign-in loads the library and reads the provider's metadata; after an
 * error, the next one retries. Errors of its functions: those of the library, the network and the provider.
 */
export function createOidcClient({ issuer, clientId, clientSecret, claim, callbackUrl }: OidcSettings): OidcClient {
  let found: Promise<Configuration> | undefined;

  async function discover(): Promise<Configuration> {
    const { allowInsecureRequests, ClientSecretPost, discovery, None } = await import('openid-client');
    const authentication = clientSecret === undefined ? None() : ClientSecretPost(clientSecret);
    // The settings allow http for a provider on this machine only.
    const execute = issuer.startsWith('http:') ? [allowInsecureRequests] : [];
    return await discovery(new URL(issuer), clientId, clientSecret, authentication, {
      execute,
      timeout: timeoutSeconds,
    });
  }

  async function getConfiguration(): Promise<Configuration> {
    found ??= discover();
    try {
      return await found;
    } catch (error) {
      found = undefined;
      throw error;
    }
  }

  return {
    async begin() {
      const library = await import('openid-client');
      const configuration = await getConfiguration();
      const verifier = library.randomPKCECodeVerifier();
      const attempt = { state: library.randomState(), nonce: library.randomNonce(), verifier };
      const scopes = ['openid', ...(claim === 'email' ? ['email'] : claim === 'sub' ? [] : ['profile', 'email'])];
      const url = library.buildAuthorizationUrl(configuration, {
        redirect_uri: callbackUrl,
        scope: scopes.join(' '),
        state: attempt.state,
        nonce: attempt.nonce,
        code_challenge: await library.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      });
      return { url: url.href, attempt };
    },
    async finish(search, { state, nonce, verifier }) {
      const { authorizationCodeGrant, fetchUserInfo } = await import('openid-client');
      const configuration = await getConfiguration();
      const tokens = await authorizationCodeGrant(configuration, new URL(`${callbackUrl}${search}`), {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      });
      const claims = tokens.claims();
      if (claims === undefined) throw new AppError('service_refused', 'the provider sent no ID token');
      if (claims[claim] !== undefined || configuration.serverMetadata().userinfo_endpoint === undefined) return claims;
      // Some providers have the claims of scopes at this address only.
      return { ...claims, ...(await fetchUserInfo(configuration, tokens.access_token, claims.sub)) };
    },
  };
}
