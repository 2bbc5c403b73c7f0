import { describe, expect, it } from 'vitest';
import { rotateSessionKey } from '../../../src/access/session-key.ts';
import type { AuditEntry } from '../../../src/audit/audit-entry.ts';
import { readAuditDays } from '../../../src/audit/audit-log.ts';
import { dataPaths } from '../../../src/config.ts';
import { createLockOut } from '../../../src/console/sign-in-guard.ts';
import { browserCookieOf, echo, startConsoleServer, type ConsoleServer } from '../../helpers/console-server.ts';
import { basic, type Answer, type Credentials } from '../../helpers/export-area.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Signs in with wrong secrets, as any client can. */
async function guess(server: ConsoleServer, { idUser }: Credentials, times: number, cookie = ''): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (let turn = 0; turn < times; turn += 1)
    answers.push(await server.signIn({ idUser, secret: 'wrong' }, { cookie }));
  return answers;
}

const rule = { free: 3, firstMs: 5000, maxDelayMs: 60_000, forgetMs: 600_000 };

describe('the lock-out', () => {
  it('The wait doubles up to its maximum, and is reset by a correct secret or after a long time', () => {
    const lockOut = createLockOut(rule);
    const waits = Array.from({ length: 9 }, () => {
      lockOut.fail('1', 0);
      return lockOut.waitSeconds('1', 0);
    });
    expect(waits).toEqual([0, 0, 5, 10, 20, 40, 60, 60, 60]);
    expect(lockOut.waitSeconds('1', 59_001)).toBe(1);
    expect(lockOut.waitSeconds('1', 60_000)).toBe(0);
    expect(lockOut.waitSeconds('2', 0)).toBe(0);
    lockOut.fail('1', 60_000);
    expect(lockOut.waitSeconds('1', 60_000)).toBe(60);
    expect(lockOut.waitSeconds('1', 660_000)).toBe(0);
    lockOut.fail('1', 660_000);
    expect(lockOut.waitSeconds('1', 660_000)).toBe(0);
    lockOut.clear('1');
    expect(lockOut.waitSeconds('1', 660_000)).toBe(0);
  });

  it('A flood of keys takes a bounded memory, and drops the oldest ones', () => {
    const lockOut = createLockOut(rule);
    for (let turn = 0; turn < 3; turn += 1) lockOut.fail('first', 0);
    for (let key = 0; key < 9_999; key += 1) lockOut.fail(String(key), 0);
    expect(lockOut.waitSeconds('first', 0)).toBe(5);
    lockOut.fail('one more', 0);
    expect(lockOut.waitSeconds('first', 0)).toBe(0);
  });
});

describe('wrong secrets of the console', () => {
  it('After five wrong secrets the correct one has to wait too, for existing and unknown users, but sessions and API calls do not', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    const session = await server.headersOf(user);
    for (const idUser of [user.idUser, '4711']) {
      const wrong = [];
      for (let turn = 0; turn < 6; turn += 1) wrong.push(await server.signIn({ idUser, secret: 'wrong' }));
      expect(wrong.map(({ status }) => status)).toEqual([401, 401, 401, 401, 401, 429]);
      expect(wrong[5]?.headers['retry-after']).toBe('5');
      expect(JSON.parse(wrong[5]?.body.toString() ?? '')).toMatchObject({
        data: { error: { detail: 'Too many wrong secrets: wait 5 s before you try again', info: { waitSeconds: 5 } } },
      });
    }
    expect((await server.signIn(user)).status).toBe(429);
    expect((await server.ask(echo, { headers: session })).status).toBe(200);
    expect((await server.ask(echo, { headers: { authorization: basic(user) } })).status).toBe(200);
  });

  it('A login that no user has is not in the audit log', async () => {
    const server = await startConsoleServer();
    for (let turn = 0; turn < 6; turn += 1) await server.signIn({ idUser: 'my pass phrase', secret: 'wrong' });
    await server.signIn({ idUser: 'Ann', secret: 'wrong' });
    const found: AuditEntry[] = [];
    for await (const { entries } of readAuditDays(dataPaths(server.dataDir).audit)) found.push(...entries);
    const counts = (name: string): number => found.filter(({ idUser }) => idUser === name).length;
    // Equal refusals share an entry: a wrong secret, and the lock.
    expect([counts('unknown'), counts(server.users.ann.idUser)]).toEqual([2, 1]);
    expect(JSON.stringify(found)).not.toContain('my pass');
  });

  it('Twenty wrong secrets from one address make it wait, for any user ids', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    const statuses = [];
    for (let turn = 0; turn < 20; turn += 1)
      statuses.push((await server.signIn({ idUser: String(100 + turn), secret: 'wrong' })).status);
    expect(new Set(statuses)).toEqual(new Set([401]));
    expect((await server.signIn(user)).status).toBe(429);
  });

  it('Behind a proxy, whose address all clients have, wrong secrets lock out only their user', async () => {
    const server = await startConsoleServer({ hasClientAddresses: false });
    for (let turn = 0; turn < 25; turn += 1)
      expect((await server.signIn({ idUser: String(100 + turn), secret: 'wrong' })).status).toBe(401);
    expect((await server.signIn(server.users.ann)).status).toBe(200);
  });

  it.each([true, false])(
    'A browser in which a user has signed in before waits only for its own wrong secrets (addresses counted: %s)',
    async (hasClientAddresses) => {
      const server = await startConsoleServer({ hasClientAddresses });
      const { ann, ben } = server.users;
      const known = browserCookieOf(await server.signIn(ann));
      const knownByBen = browserCookieOf(await server.signIn(ben));
      await guess(server, ann, 25);
      expect((await server.signIn(ann)).status).toBe(429);
      expect((await server.signIn(ann, { cookie: known })).status).toBe(200);

      const [, nonce, signature = ''] = known.split('.');
      const name = known.slice(0, known.indexOf('='));
      const others = [
        knownByBen,
        `${name}=${ann.idUser}.${knownByBen.split('.').slice(1).join('.')}`,
        `${name}=${ann.idUser}.${nonce}.${signature.startsWith('a') ? 'b' : 'a'}${signature.slice(1)}`,
        `${known}; ${known}`,
      ];
      for (const cookie of others) expect((await server.signIn(ann, { cookie })).status).toBe(429);

      const own = (await guess(server, ann, 6, known)).map(({ status }) => status);
      expect(own).toEqual([401, 401, 401, 401, 401, 429]);
      expect((await server.signIn(ann, { cookie: known })).status).toBe(429);
    },
  );

  it('A new session key makes known browsers unknown', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    const known = browserCookieOf(await server.signIn(user));
    await guess(server, user, 6);
    const before = server.sessions.cookieName();
    await rotateSessionKey(server.keysDir);
    await waitFor('the key is known', () => server.sessions.cookieName() !== before);
    const renamed = known.replace(/_[0-9a-f]{8}=/, `_${server.sessions.cookieName().slice(-8)}=`);
    for (const cookie of [known, renamed]) expect((await server.signIn(user, { cookie })).status).toBe(429);
  });

  it('Each sign-in is counted by result, except malformed ones', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    await server.ask('/console/session', { method: 'POST', body: '{}' });
    const counts = (): Promise<number[]> => Promise.all(['success', 'wrong', 'locked_out'].map(server.signIns));
    expect(await counts()).toEqual([0, 0, 0]);
    await server.signIn(user);
    await guess(server, user, 7);
    expect(await counts()).toEqual([1, 5, 2]);
  });

  it('A correct secret resets the count of wrong ones', async () => {
    const server = await startConsoleServer();
    const user = server.users.ann;
    for (let round = 0; round < 3; round += 1) {
      for (let turn = 0; turn < 4; turn += 1)
        expect((await server.signIn({ ...user, secret: 'wrong' })).status).toBe(401);
      expect((await server.signIn(user)).status).toBe(200);
    }
  });

  it('A sign-in without an id and a secret is malformed', async () => {
    const server = await startConsoleServer();
    const { ann } = server.users;
    const numbers = JSON.stringify({ idUser: Number(ann.idUser), secret: ann.secret });
    for (const body of ['', '{}', 'null', '[]', '"1"', '{"idUser":"1"}', '{"idUser":"","secret":"x"}', numbers])
      expect((await server.ask('/console/session', { method: 'POST', body })).status).toBe(400);
  });

  it('A body that is larger than any sign-in is rejected', async () => {
    const server = await startConsoleServer();
    const answer = await server.ask('/console/session', { method: 'POST', body: 'x'.repeat(5000) });
    expect(answer.status).toBe(400);
  });
});
