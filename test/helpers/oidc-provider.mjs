// A real OpenID Connect provider as a process: `node oidc-provider.mjs CALLBACK_URL CLIENT_SECRET`. It prints its issuer
// as one line. Its pages take any login; a login that begins with `unverified` has an address that is not verified.
import { createServer } from 'node:http';
import process from 'node:process';
import { Provider } from 'oidc-provider';

const [callbackUrl, clientSecret] = process.argv.slice(2);
const server = createServer((request, response) => provider.callback()(request, response));
await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'tributary',
      client_secret: clientSecret,
      redirect_uris: [callbackUrl],
      token_endpoint_auth_method: 'client_secret_post',
    },
  ],
  claims: { email: ['email', 'email_verified'] },
  pkce: { required: () => true },
  findAccount: (_context, sub) => ({
    accountId: sub,
    claims: () => ({ sub, email: sub, email_verified: !sub.startsWith('unverified') }),
  }),
  cookies: { keys: ['a key of a test'] },
});
process.stdout.write(`${issuer}\n`);
