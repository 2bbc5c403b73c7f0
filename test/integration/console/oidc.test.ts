import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addUser, listUsers } from '../../../src/access/users.ts';
import type { AuditEntry } from '../../../src/audit/audit-entry.ts';
import { readAuditDays } from '../../../src/audit/audit-log.ts';
import { startStage } from '../../../src/composition.ts';
import { dataPaths, parseConfig } from '../../../src/config.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { createMetrics } from '../../../src/runtime/metrics.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { findFreePorts } from '../../helpers/free-ports.ts';

const secret = 'the secret of the client';
const [dataDir, otherDir] = [temporaryFolder(), temporaryFolder()];
const closers: (() => unknown)[] = [];
let issuer: string;
/** A service that refuses unknown persons, and one that adds them to account 3. */
let strict: string;
let open: string;

/** Starts the provider as a process, and an export stage that uses it. */
async function startService(folder: string, port: number, settings: Readonly<Record<string, string>>): Promise<string> {
  const url = `http://127.0.0.1:${port}`;
  const script = path.join(import.meta.dirname, '../../helpers/oidc-provider.mjs');
  const child = spawn(process.execPath, [script, `${url}/console/oidc/callback`, secret], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  closers.push(() => child.kill('SIGKILL'));
  [issuer = ''] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const config = parseConfig({
    TRIBUTARY_DATA_DIR: folder,
    TRIBUTARY_API_PORT: String(port),
    TRIBUTARY_PUBLIC_API_URL: url,
    TRIBUTARY_OIDC_ISSUER: issuer,
    TRIBUTARY_OIDC_CLIENT_ID: 'tributary',
    TRIBUTARY_OIDC_CLIENT_SECRET: secret,
    ...settings,
  });
  const logger = createLogger('silent');
  const stage = await startStage('export', { config, entry: '', logger, metrics: createMetrics() });
  closers.push(() => stage.stop());
  return url;
}

/** A browser without scripts: it keeps cookies by origin and name, and follows redirects. */
function createBrowser() {
  const cookies = new Map<string, string>();
  async function visit(url: string, form?: Readonly<Record<string, string>>): Promise<{ url: string; body: string }> {
    const { origin } = new URL(url);
    const sent = [...cookies].flatMap(([name, value]) =>
      name.startsWith(`${origin} `) ? [`${name.slice(origin.length + 1)}=${value}`] : [],
    );
    const answer = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: sent.join('; ') },
      ...(form === undefined ? {} : { method: 'POST', body: new URLSearchParams(form) }),
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      if (value === '') cookies.delete(`${origin} ${name}`);
      else cookies.set(`${origin} ${name}`, value);
    }
    const next = answer.headers.get('location');
    const body = await answer.text();
    return next === null ? { url, body } : await visit(new URL(next, url).href);
  }
  return { cookies, visit };
}

const actionOf = (body: string, base: string): string => new URL(/action="([^"]+)"/.exec(body)?.[1] ?? '', base).href;

/** Signs in at the provider as a person does; returns where the browser ends. */
async function signIn(service: string, login: string, browser = createBrowser()) {
  const form = await browser.visit(`${service}/console/oidc`);
  const consent = await browser.visit(actionOf(form.body, form.url), { prompt: 'login', login, password: 'any' });
  const end = await browser.visit(actionOf(consent.body, consent.url), { prompt: 'consent' });
  const cookie = [...browser.cookies].map(([name, value]) => `${name.split(' ')[1]}=${value}`).join('; ');
  const answer = await fetch(`${service}/console/session`, { headers: { cookie, 'x-csrf-token': '' } });
  const { data } = (await answer.json()) as {
    readonly data: { readonly name: string; readonly idAccount: number } | null;
  };
  return { end: end.url.slice(service.length), session: data };
}

beforeAll(async () => {
  const [one = 0, two = 0] = await findFreePorts(2);
  await addUser(dataPaths(dataDir), { name: 'ann@example.com', idAccount: 1, canExport: true });
  await addUser(dataPaths(dataDir), { name: 'unverified@example.com', idAccount: 1, canExport: true });
  for (const idAccount of [1, 2])
    await addUser(dataPaths(dataDir), { name: 'both@example.com', idAccount, canExport: true });
  await addUser(dataPaths(otherDir), { name: 'first', idAccount: 1, canExport: true });
  open = await startService(otherDir, two, { TRIBUTARY_OIDC_NEW_USERS_ACCOUNT: '3' });
  strict = await startService(dataDir, one, {});
}, 60_000);
afterAll(async () => {
  for (const close of closers.toReversed()) await close();
});

describe('the sign-in by a provider of OpenID Connect', () => {
  it('A person whose verified address is the name of a user gets a session of that user', async () => {
    expect(await (await fetch(`${strict}/console/sign-in.json`)).json()).toEqual({ oidc: true });
    expect(await signIn(strict, 'ann@example.com')).toEqual({
      end: '/console/',
      session: expect.objectContaining({ name: 'ann@example.com', idAccount: 1 }) as unknown,
    });
  });

  it('Persons without a user, with an address that is not verified, or with several users are refused, and nothing is added', async () => {
    const before = await listUsers(dataPaths(dataDir));
    for (const [login, failure] of [
      ['eve@example.com', 'unknown'],
      ['unverified@example.com', 'unverified'],
      ['both@example.com', 'ambiguous'],
    ] as const)
      expect([login, await signIn(strict, login)]).toEqual([
        login,
        { end: `/console/?sign-in=${failure}`, session: null },
      ]);
    expect(await listUsers(dataPaths(dataDir))).toEqual(before);
    const entries: AuditEntry[] = [];
    for await (const day of readAuditDays(dataPaths(dataDir).audit)) entries.push(...day.entries);
    expect(entries.toReversed().map(({ outcome, name, detail }) => [outcome, name, detail])).toEqual([
      ['ok', 'ann@example.com', 'OpenID Connect'],
      ['refused', 'eve@example.com', 'OpenID Connect: unknown'],
      ['refused', undefined, 'OpenID Connect: unverified'],
      ['refused', 'both@example.com', 'OpenID Connect: ambiguous'],
    ]);
  });

  it('An unknown person becomes a user of the account that a setting names, once', async () => {
    for (let turn = 0; turn < 2; turn += 1)
      expect((await signIn(open, 'new@example.com')).session).toMatchObject({ name: 'new@example.com', idAccount: 3 });
    expect((await listUsers(dataPaths(otherDir))).map(({ name }) => name)).toEqual(['first', 'new@example.com']);
  });

  it('A callback without its attempt, with another state, or repeated starts no session', async () => {
    const callback = `${strict}/console/oidc/callback`;
    const stranger = createBrowser();
    expect((await stranger.visit(`${callback}?code=x&state=y`)).url).toBe(`${strict}/console/?sign-in=expired`);
    const browser = createBrowser();
    await browser.visit(`${strict}/console/oidc`);
    const attempt = new Map(browser.cookies);
    const forged = await browser.visit(`${callback}?code=x&state=y&iss=${encodeURIComponent(issuer)}`);
    expect(forged.url).toBe(`${strict}/console/?sign-in=provider`);
    expect([...attempt.keys()].filter((name) => name.endsWith('tributary_oidc'))).toHaveLength(1);
    expect([...browser.cookies.keys()].filter((name) => name.startsWith(strict))).toEqual([]);
  });
});

const parse = (settings: Readonly<Record<string, string>>) => () =>
  parseConfig({ TRIBUTARY_DATA_DIR: '/x', ...settings });

describe('the settings of OpenID Connect', () => {
  it('A provider needs an id of the client, a public address and https', () => {
    expect(parse({ TRIBUTARY_OIDC_ISSUER: 'https://id.example.com' })).toThrow(/CLIENT_ID.*PUBLIC_API_URL/);
    expect(parse({ TRIBUTARY_OIDC_ISSUER: 'http://id.example.com' })).toThrow(/https:\/\//);
    expect(parse({ TRIBUTARY_OIDC_CLIENT_ID: 'x' })).toThrow(/needs TRIBUTARY_OIDC_ISSUER/);
  });
});
