import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { rotateSessionKey } from '../../../src/access/session-key.ts';
import { setPassword } from '../../../src/access/passwords.ts';
import { addUser, listUsers, removeUser, rotateUserSecret } from '../../../src/access/users.ts';
import type { AuditEntry } from '../../../src/audit/audit-entry.ts';
import { readAuditDays } from '../../../src/audit/audit-log.ts';
import { dataPaths } from '../../../src/config.ts';
import { cookieOf, cookiesOf, echo, startConsoleServer, type ConsoleServer } from '../../helpers/console-server.ts';
import { basic } from '../../helpers/export-area.ts';
import { waitFor } from '../../helpers/wait.ts';

const hourMs = 3_600_000;

type Headers = Readonly<Record<string, string>>;
const statusOf = async (server: ConsoleServer, headers: Headers): Promise<number> =>
  (await server.ask(echo, { headers })).status;
const sessionStatus = async (server: ConsoleServer, { cookie = '' }: Headers): Promise<number> =>
  (await server.ask('/console/session', { headers: { cookie } })).status;

describe('a password', () => {
  const password = 'correct horse 7';
  /** Sets a password, and waits until the server has it. */
  async function set(server: ConsoleServer, idUser: string, given = password): Promise<void> {
    const { passwordHash } = await setPassword(dataPaths(server.dataDir), Number(idUser), given);
    await waitFor('the password is known', () => server.findPasswordHash(idUser) === passwordHash);
  }

  it('A user signs in by name or id with a password that a command has set, and still with the secret', async () => {
    const server = await startConsoleServer();
    const { ann } = server.users;
    const paths = dataPaths(server.dataDir);
    expect((await server.signIn({ idUser: 'Ann', secret: password })).status).toBe(401);
    expect((await server.signIn({ ...ann, idUser: 'Ann' })).status).toBe(200);
    await set(server, ann.idUser);
    for (const idUser of ['Ann', 'Ann@7'])
      expect([idUser, (await server.signIn({ idUser, secret: password })).json?.data]).toMatchObject([
        idUser,
        { name: 'Ann' },
      ]);
    expect((await server.signIn(ann)).status).toBe(200);
    for (const idUser of ['Ann@1', 'Ben'])
      expect([idUser, (await server.signIn({ idUser, secret: password })).status]).toEqual([idUser, 401]);
    // The secret of the API and the password of the console do not replace each other.
    const headers = { authorization: basic({ idUser: ann.idUser, secret: password }) };
    expect((await server.ask(echo, { headers })).status).toBe(403);
    await setPassword(paths, Number(ann.idUser), undefined);
    expect((await listUsers(paths))[0]).not.toHaveProperty('hasPassword');
  });

  it('Users of one name in two accounts are told apart by their passwords, or by the account', async () => {
    const server = await startConsoleServer();
    const paths = dataPaths(server.dataDir);
    const other = await addUser(paths, { name: 'Ann', idAccount: 1, canExport: true });
    await setPassword(paths, Number(server.users.ann.idUser), password);
    await set(server, other.idUser, `${password}!`);
    const idOf = async (idUser: string, secret: string) => (await server.signIn({ idUser, secret })).json?.data;
    expect(await idOf('Ann', `${password}!`)).toMatchObject({ idUser: other.idUser });
    await set(server, other.idUser);
    expect((await server.signIn({ idUser: 'Ann', secret: password })).status).toBe(400);
    expect(await idOf('Ann@1', password)).toMatchObject({ idUser: other.idUser });
    expect(await idOf('Ann@7', password)).toMatchObject({ idUser: server.users.ann.idUser });
  });

  it('A user changes the password with the current one: other sessions end, and this one continues', async () => {
    const server = await startConsoleServer();
    const { ann } = server.users;
    const [here, elsewhere] = [await server.headersOf(ann), await server.headersOf(ann)];
    const change = (headers: Headers, secret: string, to = password) =>
      server.ask('/console/password', { method: 'POST', headers, body: JSON.stringify({ secret, password: to }) });
    expect((await change({}, ann.secret)).status).toBe(403);
    expect((await change({ cookie: here['cookie'] ?? '' }, ann.secret)).status).toBe(403);
    expect((await change(here, 'guessed')).status).toBe(401);
    for (const weak of ['short', 'aaaaaaaaaaaaaaaa', 'x'.repeat(201), 'my name is ann'])
      expect([weak, (await change(here, ann.secret, weak)).status]).toEqual([weak, 400]);
    const changed = await change(here, ann.secret);
    expect(changed).toMatchObject({ status: 200, json: { data: { name: 'Ann' } } });
    expect(await statusOf(server, elsewhere)).toBe(403);
    const { csrfToken } = (changed.json?.data ?? {}) as { readonly csrfToken: string };
    expect(await statusOf(server, { cookie: cookieOf(changed), 'x-csrf-token': csrfToken })).toBe(200);
    expect((await server.signIn({ idUser: 'Ann', secret: password })).status).toBe(200);
    const stored = readFileSync(dataPaths(server.dataDir).access, 'utf8');
    expect(stored).toMatch(/"passwordHash": "scrypt:15:8:3:/);
    expect(stored).not.toContain(password);
  });

  it('Guesses of a password by each spelling of a user are counted together, also if they arrive at once', async () => {
    const server = await startConsoleServer();
    const { ann } = server.users;
    await set(server, ann.idUser);
    const spellings = ['Ann', ann.idUser, 'Ann@7', 'Ann@07', 'Ann@007'];
    const logins = [...spellings, ...spellings, ...spellings];
    const guesses = await Promise.all(logins.map((idUser) => server.signIn({ idUser, secret: 'guess' })));
    expect(guesses.filter(({ status }) => status === 401)).toHaveLength(5);
    expect((await server.signIn({ idUser: 'Ann', secret: password })).status).toBe(429);
  });
});

describe('a session of the console', () => {
  it('After a sign-in with id and secret, the cookie and the token authorize API calls, and the session names the user', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    const answer = await server.signIn(user);
    expect(answer.json?.data).toMatchObject({
      idUser: user.idUser,
      name: 'Ann',
      idAccount: 7,
      canExport: true,
      isOperator: false,
      version: '1.2.3',
      timezone: 'Europe/Moscow',
    });
    const headers = await server.headersOf(user);
    expect((await server.ask(echo, { headers })).json?.data).toEqual({ idUser: user.idUser, idAccount: 7 });
    expect((await server.ask('/console/session', { headers })).json?.data).toMatchObject({ name: 'Ann' });
  });

  it('The audit log has sign-ins, refused ones and sign-outs with the address, and no secret', async () => {
    const server = await startConsoleServer();
    const { ann } = server.users;
    await server.signIn({ ...ann, secret: 'guessed' });
    const headers = await server.headersOf(ann);
    await server.ask('/console/session', { method: 'DELETE', headers });
    const call = { authorization: basic({ ...ann, secret: 'guessed' }) };
    expect((await server.ask(echo, { headers: call })).status).toBe(403);
    const folder = dataPaths(server.dataDir).audit;
    const days: AuditEntry[] = [];
    for await (const { entries } of readAuditDays(folder)) days.push(...entries);
    const shared = { idUser: ann.idUser, address: '127.0.0.1' };
    expect(days.toSorted((a, b) => a.action.localeCompare(b.action))).toMatchObject([
      { action: 'api_call', outcome: 'refused', ...shared },
      { action: 'sign_in', ...shared },
      { action: 'sign_in', ...shared },
      { action: 'sign_out', outcome: 'ok', name: 'Ann', ...shared },
    ]);
    expect(
      days
        .filter(({ action }) => action === 'sign_in')
        .map(({ outcome }) => outcome)
        .toSorted(),
    ).toEqual(['ok', 'refused']);
    expect(JSON.stringify(days)).not.toMatch(new RegExp(`guessed|${ann.secret}`));
  });

  it('A page that opens without a session gets 200 without data, and one whose session has ended gets 401', async () => {
    const server = await startConsoleServer();
    const ask = (token: string) => server.ask('/console/session', { headers: { 'x-csrf-token': token } });
    expect(await ask('')).toMatchObject({ status: 200, json: { code: 200, data: null } });
    expect((await ask('token')).status).toBe(401);
    expect((await server.ask('/console/session', {})).status).toBe(401);
  });

  it('The cookie is HttpOnly, SameSite, valid for all paths, and Secure over HTTPS', async () => {
    const plain = await startConsoleServer();
    const secure = await startConsoleServer({ publicUrl: 'https://console.example.com' });
    const [first, second] = [await plain.signIn(plain.users.ann), await secure.signIn(secure.users.ann)];
    expect(cookiesOf(first)).toEqual([
      expect.stringMatching(/^tributary_[0-9a-f]{8}=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict$/),
      expect.stringMatching(
        /^tributary_browser_[0-9a-f]{8}=[\w.-]+; Path=\/console\/session; HttpOnly; SameSite=Strict; Max-Age=31536000$/,
      ),
    ]);
    expect(cookiesOf(second)).toEqual([
      expect.stringMatching(/^__Host-tributary_[0-9a-f]{8}=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict; Secure$/),
      expect.stringMatching(/; HttpOnly; SameSite=Strict; Secure; Max-Age=31536000$/),
    ]);
    expect(first.headers['cache-control']).toBe('no-store');
  });

  it('The cookie alone, a token alone, and the token of another session authorize no call', async () => {
    const server = await startConsoleServer();
    const { ann, ben } = server.users;
    const [ofAnn, ofBen] = [await server.headersOf(ann), await server.headersOf(ben)];
    const { cookie = '', 'x-csrf-token': token = '' } = ofAnn;
    const tries: Headers[] = [
      { cookie },
      { 'x-csrf-token': token },
      { cookie, 'x-csrf-token': '' },
      { cookie, 'x-csrf-token': ofBen['x-csrf-token'] ?? '' },
      { cookie, 'x-csrf-token': `${token}x` },
    ];
    for (const headers of tries) expect(await statusOf(server, headers)).toBe(403);
    expect(server.calls()).toBe(0);
    expect(await statusOf(server, ofAnn)).toBe(200);
  });

  it.each(['cross-site', 'same-site', 'anything'])(
    'A request that the browser marks as %s is rejected, even with valid credentials',
    async (site) => {
      const server = await startConsoleServer();
      const user = server.users.ann;
      const headers = await server.headersOf(user);
      expect(await statusOf(server, { ...headers, 'sec-fetch-site': site })).toBe(403);
      expect(await statusOf(server, { ...headers, 'sec-fetch-site': 'same-origin' })).toBe(200);
      const asked = await server.ask('/console/session', { headers: { ...headers, 'sec-fetch-site': site } });
      expect(asked.status).toBe(401);
      expect((await server.signIn(user, { 'sec-fetch-site': site })).status).toBe(403);
      expect((await server.signIn(user, { origin: 'https://evil.example.com' })).status).toBe(403);
      expect((await server.signIn(user, { origin: `http://127.0.0.1:${server.port}` })).status).toBe(200);
    },
  );

  it('A cookie with any changed character is rejected, and so is a repeated cookie', async () => {
    const server = await startConsoleServer();
    const headers = await server.headersOf(server.users.ann);
    const { cookie = '' } = headers;
    const [name = '', value = ''] = cookie.split('=');
    for (let place = 0; place < value.length; place += 1) {
      const other = value[place] === '1' ? '2' : '1';
      const forged = `${name}=${value.slice(0, place)}${other}${value.slice(place + 1)}`;
      // The last character of unpadded base64 has unused bits: the text is compared, not the decoded bytes.
      expect(await sessionStatus(server, { cookie: forged })).toBe(401);
    }
    expect(await sessionStatus(server, { cookie: `${cookie}; ${cookie}` })).toBe(401);
    expect(await sessionStatus(server, { cookie: `a=b; ${cookie}; c` })).toBe(200);
  });

  it('A session ends after two idle hours, and twelve hours after the sign-in', async () => {
    const server = await startConsoleServer();
    let headers = await server.headersOf(server.users.ann);
    const started = server.now;
    server.now = started + 2 * hourMs - 2000;
    expect(await statusOf(server, headers)).toBe(200);
    server.now = started + 2 * hourMs + 1000;
    expect(await statusOf(server, headers)).toBe(403);
    for (let hour = 1.5; hour < 12; hour += 1.5) {
      server.now = started + hour * hourMs;
      const renewed = await server.ask('/console/session', { headers });
      expect(renewed.status).toBe(200);
      headers = { ...headers, cookie: cookieOf(renewed) };
      expect(await statusOf(server, headers)).toBe(200);
    }
    server.now = started + 12 * hourMs;
    expect(await statusOf(server, headers)).toBe(403);
    expect(await sessionStatus(server, headers)).toBe(401);
  });

  it('API calls alone, such as polling, do not extend a session', async () => {
    const server = await startConsoleServer();
    const headers = await server.headersOf(server.users.ann);
    const started = server.now;
    server.now = started + 1.9 * hourMs;
    const answer = await server.ask(echo, { headers });
    expect([answer.status, answer.headers['set-cookie']]).toEqual([200, undefined]);
    server.now = started + 2.1 * hourMs;
    expect(await statusOf(server, headers)).toBe(403);
  });

  it('A sign-out needs the token, and ends every session of the user, even with a copied cookie', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    const [headers, other] = [await server.headersOf(user), await server.headersOf(user)];
    const forged = await server.ask('/console/session', {
      method: 'DELETE',
      headers: { cookie: headers['cookie'] ?? '' },
    });
    expect(forged.status).toBe(403);
    expect(await statusOf(server, headers)).toBe(200);
    const answer = await server.ask('/console/session', { method: 'DELETE', headers });
    expect(answer.status).toBe(200);
    expect(String(answer.headers['set-cookie'])).toContain('Max-Age=0');
    expect(await statusOf(server, headers)).toBe(403);
    expect(await statusOf(server, other)).toBe(403);
    // Within the same second.
    const next = await server.headersOf(user);
    expect(await statusOf(server, next)).toBe(200);
    await server.ask('/console/session', { method: 'DELETE', headers: next });
    expect(await statusOf(server, next)).toBe(403);
    expect(await statusOf(server, await server.headersOf(user))).toBe(200);
  });

  it('A sign-out holds for other processes and after a restart, regardless of other sign-ins and sign-outs', async () => {
    const server = await startConsoleServer();
    const { ann, ben } = server.users;
    const other = await server.openEnds();
    const headers = await server.headersOf(ann);
    await server.ask('/console/session', { method: 'DELETE', headers });
    await waitFor('the other process reads the sign-out', () => other.of(ann.idUser) > 0);
    const statuses = new Set<number>();
    for (let n = 0; n < 31; n += 1) {
      const ofBen = await server.headersOf(ben);
      statuses.add((await server.ask('/console/session', { method: 'DELETE', headers: ofBen })).status);
    }
    expect((await server.signIn(ben)).status).toBe(429);
    expect(statuses).toEqual(new Set([200]));
    expect(await statusOf(server, headers)).toBe(403);
    const restarted = await server.openEnds();
    expect([restarted.of(ann.idUser) > 0, restarted.of(ben.idUser) > 0, restarted.of('3')]).toEqual([true, true, 0]);
  });

  it('A damaged file of sign-outs ends every session, and the service starts', async () => {
    const server = await startConsoleServer();
    const { ann, ben } = server.users;
    const [ofAnn, ofBen] = [await server.headersOf(ann), await server.headersOf(ben)];
    await server.ask('/console/session', { method: 'DELETE', headers: ofAnn });
    const file = path.join(server.keysDir, 'session-ends.json');
    writeFileSync(file, readFileSync(file, 'utf8').replace(/:\d{10}/, ':1'));
    await waitFor('the session of the other user has ended', async () => (await statusOf(server, ofBen)) === 403);
    expect((await server.openEnds()).of(ann.idUser)).toBeGreaterThan(0);
    const next = await server.headersOf(ben);
    expect(await statusOf(server, next)).toBe(200);
    await server.ask('/console/session', { method: 'DELETE', headers: next });
    expect((await server.openEnds()).of('3')).toBeGreaterThan(0);
  });

  it('A session ends with a new secret of its user, with the user, and with the key', async () => {
    const server = await startConsoleServer();
    const paths = dataPaths(server.dataDir);
    const users = Object.values(server.users);
    const [ann = {}, ben = {}, cem = {}] = await Promise.all(users.map((user) => server.headersOf(user)));
    await rotateUserSecret(paths, Number(users[0]?.idUser));
    await waitFor('the session of the rotated secret has ended', async () => (await statusOf(server, ann)) === 403);
    expect(await statusOf(server, ben)).toBe(200);
    await removeUser(paths, Number(users[1]?.idUser));
    await waitFor('the session of the removed user has ended', async () => (await statusOf(server, ben)) === 403);
    expect(await statusOf(server, cem)).toBe(200);
    await rotateSessionKey(server.keysDir);
    await waitFor('the session under the old key has ended', async () => (await statusOf(server, cem)) === 403);
    expect(await statusOf(server, await server.headersOf(users[2] ?? { idUser: '', secret: '' }))).toBe(200);
  });

  it('Without a readable session key, sign-ins fail until it is restored, and calls with HTTP Basic work', async () => {
    const server = await startConsoleServer({ sessionKey: 'not a key\n' });
    const { ann } = server.users;
    expect(server.keyProblems()).toMatchObject([
      { code: 'session_key_unreadable', message: expect.stringContaining('users cannot sign in to the console') },
    ]);
    const refused = await server.signIn(ann);
    expect([refused.status, refused.headers['retry-after']]).toEqual([500, '5']);
    expect((await server.ask('/console/session', {})).status).toBe(500);
    expect(await statusOf(server, { authorization: basic(ann) })).toBe(200);
    await rotateSessionKey(server.keysDir);
    await waitFor('the key is read', async () => (await server.signIn(ann)).status === 200);
    expect(server.keyProblems()).toEqual([]);
  });

  it('Two services on one host use different cookie names, and neither accepts cookies of the other', async () => {
    const [one, other] = [await startConsoleServer(), await startConsoleServer()];
    const headers = await one.headersOf(one.users.ann);
    expect(other.sessions.cookieName()).not.toBe(one.sessions.cookieName());
    expect(await statusOf(other, headers)).toBe(403);
  });
});

describe('programs and the console', () => {
  it('A call with HTTP Basic has the same response with any cookie, and wrong credentials are rejected even with a valid session', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    const session = await server.headersOf(user);
    const wrong = basic({ ...user, secret: 'wrong' });
    for (const authorization of [basic(user), wrong]) {
      const [alone, beside] = [
        await server.ask(echo, { headers: { authorization } }),
        await server.ask(echo, { headers: { ...session, authorization } }),
      ];
      expect(beside.body).toEqual(alone.body);
      expect(alone.status).toBe(authorization === wrong ? 403 : 200);
    }
  });

  it('Requests of the console do not use up the API quota of the user', async () => {
    const server = await startConsoleServer({ quotaUser: [{ limit: 3, windowMs: 3_600_000 }] });
    const user = server.users.ann;
    const session = await server.headersOf(user);
    for (let call = 0; call < 10; call += 1) expect(await statusOf(server, session)).toBe(200);
    const byBasic = { authorization: basic(user) };
    const statuses = [];
    for (let call = 0; call < 4; call += 1) statuses.push(await statusOf(server, byBasic));
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect(await statusOf(server, session)).toBe(200);
  });
});
