import { integer, secret, setting, word } from './setting-kinds.ts';

/** Settings of the sign-in to the console by an OpenID Connect provider. */
export const oidcSettings = {
  oidcIssuer: setting<string | undefined>({
    name: 'OIDC_ISSUER',
    values: 'https address; http on this machine only',
    about: 'OpenID Connect provider by which users sign in to the console.',
    notes:
      'Needs `TRIBUTARY_OIDC_CLIENT_ID` and `TRIBUTARY_PUBLIC_API_URL`: [OpenID Connect](../console.md#openid-connect).',
    fallback: undefined,
    parse(given, refuse) {
      const url = URL.canParse(given) ? new URL(given) : undefined;
      const isLocal = url !== undefined && ['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname);
      if (url?.protocol !== 'https:' && !(isLocal && url.protocol === 'http:'))
        refuse('must be an address that starts with https://');
      return given;
    },
  }),
  oidcClientId: word('OIDC_CLIENT_ID', {
    fallback: undefined,
    values: 'text',
    about: 'Id of this service at the provider.',
  }),
  oidcClientSecret: secret('OIDC_CLIENT_SECRET', { about: 'Secret of this service at the provider, if it has one.' }),
  oidcClaim: word('OIDC_CLAIM', {
    fallback: 'email',
    values: 'name of a claim',
    about: 'Claim of the provider that is the name of a user. `email` must be verified.',
  }),
  oidcNewUsersAccount: integer('OIDC_NEW_USERS_ACCOUNT', {
    fallback: 0,
    usual: 'none',
    min: 0,
    about:
      'Account in which a user is created at the first sign-in of an unknown person. 0: unknown persons are refused.',
  }),
} as const;
