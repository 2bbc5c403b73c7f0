import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addApp } from '../../../src/access/apps.ts';
import { addUser, listUsers, removeUser } from '../../../src/access/users.ts';
import { noAccount } from '../../../src/access/access.ts';
import { startStage } from '../../../src/composition.ts';
import { dataPaths, parseConfig } from '../../../src/config.ts';
import { ensureLake } from '../../../src/lake/lake.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { createMetrics } from '../../../src/runtime/metrics.ts';
import { basic, send, type Answer, type Call, type Credentials } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

const dataDir = temporaryFolder();
const paths = dataPaths(dataDir);
const form = (given: Readonly<Record<string, string>>): string => new URLSearchParams(given).toString();
const byName = (a: string, b: string): number => (a < b ? -1 : 1);
type Data = Readonly<Record<string, unknown>>;
const dataOf = ({ json }: Answer): Data => (json?.data ?? {}) as unknown as Data;

describe('the methods of operators', () => {
  let port: number;
  let stop: () => Promise<void>;
  let boss: Credentials;
  let member: Credentials;
  let analyst: Credentials;

  beforeAll(async () => {
    await ensureLake(paths.lake, { clock: createClock(0), retentionMs: 1 });
    await addApp(paths, { idApp: 1, platform: 'web', idAccount: 1, title: 'Shop' }, Date.now());
    await addApp(paths, { idApp: 2, platform: 'web', idAccount: 2, title: 'Game' }, Date.now());
    boss = await addUser(paths, { name: 'boss', idAccount: noAccount, canExport: false, operator: true });
    member = await addUser(paths, { name: 'member', idAccount: 1, canExport: true, operator: true });
    analyst = await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    const config = parseConfig({ TRIBUTARY_DATA_DIR: dataDir, TRIBUTARY_API_PORT: '0', TRIBUTARY_QUOTA_USER: 'off' });
    const stage = await startStage('export', {
      config,
      entry: '',
      logger: createLogger('silent'),
      metrics: createMetrics(),
    });
    port = stage.port ?? 0;
    stop = () => stage.stop();
  });
  afterAll(() => stop());

  const call = (user: Credentials, target: string, options: Call = {}) =>
    send(port, `/api/${target}`, { ...options, headers: { authorization: basic(user) } });
  const look = (target: string, user = boss) => call(user, `operations/v1/${target}`);
  const change = (target: string, given: Readonly<Record<string, string>>, user = boss) =>
    call(user, `operations/v1/${target}`, { method: 'POST', body: form(given) });

  it('Every method of operations is refused with 403 to other users, and changes nothing', async () => {
    const before = readFileSync(paths.access, 'utf8');
    for (const target of ['status.json', 'apps.json', 'users.json', 'audit.json'])
      expect([target, (await look(target, analyst)).status]).toEqual([target, 403]);
    for (const target of [
      'app/add',
      'app/set',
      'app/token',
      'app/revoke',
      'app/remove',
      'app/restore',
      'user/add',
      'user/set',
      'user/secret',
      'user/remove',
    ])
      expect([target, (await change(`${target}.json`, { idApp: '1', idUser: '1' }, analyst)).status]).toEqual([
        target,
        403,
      ]);
    expect((await look('status.json', { idUser: boss.idUser, secret: 'wrong' })).status).toBe(403);
    expect(readFileSync(paths.access, 'utf8')).toBe(before);
  });

  it('An operator without an account has no data, creates no exports, and sees the status of the service', async () => {
    for (const target of [
      'data/v1/apps.json',
      'data/v1/volume.json',
      'app/v1/live?idApp=1',
      'catalogue/v1/get.json?idApp=1',
    ])
      expect([target, (await call(boss, target)).status]).toEqual([target, 400]);
    expect(dataOf(await call(boss, 'report/v1/file/list.json'))).toMatchObject({ reports: [] });
    const create =
      'raw/v1/export/create.json?event=customEvents&selectors=eventId&dateFrom=2025-01-01&dateTo=2025-01-01';
    expect((await call(boss, create)).status).toBe(400);
    const status = dataOf(await look('status.json'));
    expect(status).toMatchObject({ ready: true, processes: [], ingest: [], lake: {}, problems: [] });
    expect((status['disks'] as Data[])[0]).toMatchObject({ holds: expect.arrayContaining(['data']) });
    expect(dataOf(await call(member, 'data/v1/apps.json'))).toMatchObject({ total: 1 });
  });

  it('An operator changes apps and tokens as the commands do; a token is returned once and listed by its prefix', async () => {
    const added = dataOf(await change('app/add.json', { idApp: '5', platform: 'game', title: 'Fünf', idAccount: '3' }));
    const token = String(added['token']);
    expect((await change('app/add.json', { idApp: '5', platform: 'game' })).status).toBe(400);
    const second = String(dataOf(await change('app/token.json', { idApp: '5' }))['token']);
    const listed = (await look('apps.json?search=fünf')).body.toString();
    expect([token, second].filter((shown) => listed.includes(shown))).toEqual([]);
    expect(dataOf(await look(`apps.json?search=${encodeURIComponent('FÜNF')}`))).toMatchObject({
      apps: [{ idApp: '5', idAccount: '3', tokens: [{ prefix: token.slice(0, 8) }, { prefix: second.slice(0, 8) }] }],
      total: 1,
    });
    expect(dataOf(await change('app/set.json', { idApp: '5', title: 'Five', idProject: '9' }))).toMatchObject({
      idApp: '5',
      title: 'Five',
      idProject: '9',
      tokens: [{ prefix: token.slice(0, 8) }, { prefix: second.slice(0, 8) }],
    });
    expect(dataOf(await change('app/set.json', { idApp: '5', idProject: 'none' }))).not.toHaveProperty('idProject');
    expect((await change('app/set.json', { idApp: '5' })).status).toBe(400);
    expect((await change('app/set.json', { idApp: '55', title: 'x' })).status).toBe(404);
    expect(dataOf(await change('app/revoke.json', { idApp: '5', prefix: token.slice(0, 8) }))).toMatchObject({
      tokens: [second.slice(0, 8)],
    });
    expect((await change('app/revoke.json', { idApp: '5', prefix: token.slice(0, 8) })).status).toBe(404);
    expect(dataOf(await change('app/remove.json', { idApp: '5' }))).toMatchObject({ revoked: [second.slice(0, 8)] });
    expect(dataOf(await look('apps.json?removed=1'))).toMatchObject({ apps: [{ idApp: '5', tokens: [] }], total: 1 });
    expect(dataOf(await change('app/restore.json', { idApp: '5' }))).toMatchObject({ idApp: '5' });
    expect((await change('app/restore.json', { idApp: '5' })).status).toBe(400);
  });

  it('An operator adds and removes users; a new secret revokes the old one, and a removed user is answered 403', async () => {
    const added = dataOf(await change('user/add.json', { name: 'bob', idAccount: '2' }));
    const bob = { idUser: String(added['idUser']), secret: String(added['secret']) };
    await waitFor('bob is known', async () => (await call(bob, 'data/v1/apps.json')).status === 200);
    expect((await look('users.json')).body.toString()).not.toContain(bob.secret);
    const renewed = {
      ...bob,
      secret: String(dataOf(await change('user/secret.json', { idUser: bob.idUser }))['secret']),
    };
    await waitFor('the new secret is known', async () => (await call(renewed, 'data/v1/apps.json')).status === 200);
    expect((await call(bob, 'data/v1/apps.json')).status).toBe(403);
    const set = { idUser: bob.idUser, canExport: '0', maxExports: '2', files: 'gzip' };
    expect(dataOf(await change('user/set.json', set))).toMatchObject({
      canExport: false,
      maxExports: 2,
      files: 'gzip',
    });
    await waitFor('the permission is removed', async () => (await call(renewed, 'data/v1/apps.json')).status === 400);
    const back = dataOf(await change('user/set.json', { ...set, canExport: '1', maxExports: 'none', files: 'auto' }));
    expect(back).toEqual((await listUsers(paths)).find(({ idUser }) => idUser === bob.idUser));
    expect(back).not.toHaveProperty('maxExports');
    await waitFor('it is back', async () => (await call(renewed, 'data/v1/apps.json')).status === 200);
    expect((await change('user/set.json', { idUser: bob.idUser })).status).toBe(400);
    expect((await change('user/set.json', { idUser: boss.idUser, canExport: '1' })).status).toBe(400);
    expect(dataOf(await change('user/remove.json', { idUser: bob.idUser }))).toMatchObject({ name: 'bob' });
    await waitFor('bob is removed', async () => (await call(renewed, 'data/v1/apps.json')).status === 403);
    expect((await change('user/remove.json', { idUser: bob.idUser })).status).toBe(404);
    expect((await change('user/remove.json', { idUser: boss.idUser })).json?.data?.error?.detail).toContain(
      'cannot remove itself',
    );
    const chief = dataOf(await change('user/add.json', { name: 'chief', operator: '1' }));
    expect((await listUsers(paths)).at(-1)).toEqual({
      idUser: chief['idUser'],
      name: 'chief',
      canExport: false,
      files: 'auto',
      operator: true,
    });
  });

  it('The audit log names the operator and the object of each change, without tokens and secrets', async () => {
    const { token } = dataOf(await change('app/token.json', { idApp: '1' }));
    const eve = dataOf(await change('user/add.json', { name: 'eve', idAccount: '1' }));
    await change('app/revoke.json', { idApp: '1', prefix: String(token).slice(0, 8) });
    await change('user/set.json', { idUser: '999', canExport: '0' });
    const newest = await look('audit.json?limit=3');
    expect(dataOf(newest)).toMatchObject({
      hasMore: true,
      entries: [
        { action: 'app_token_revoke', subject: `app 1 token ${String(token).slice(0, 8)}` },
        { action: 'user_add', subject: `user ${String(eve['idUser'])}`, detail: 'name eve' },
        { action: 'app_token_add', outcome: 'ok', idUser: boss.idUser, name: 'boss', subject: 'app 1' },
      ],
    });
    const all = (await look('audit.json?limit=1000')).body.toString();
    for (const secret of [token, eve['secret'], boss.secret]) expect(all).not.toContain(secret);
    expect((await look('audit.json?limit=0')).status).toBe(400);
  });

  it('The audit log has who looked at rows of which app, once for equal previews, without values of filters', async () => {
    const rows = {
      event: 'userAuthorisations',
      selectors: 'customUserId',
      timezone: 'UTC',
      customUserId: 'anna',
      idApp: '1',
    };
    const asked = form({ ...rows, dateFrom: '2026-01-01', dateTo: '2026-01-02' });
    for (const target of ['preview', 'preview', 'estimate'])
      expect((await call(analyst, `raw/v1/export/${target}.json?${asked}`)).body.toString()).toContain('"code":200');
    await call(analyst, `raw/v1/export/preview.json?${asked}&idApp=x`);
    await call(analyst, 'app/v1/refusals.json?idApp=1');
    const newest = await look('audit.json?limit=2');
    expect(dataOf(newest)['entries']).toMatchObject([
      { action: 'view', idUser: analyst.idUser, name: 'ann', subject: 'app 1, refusals' },
      {
        action: 'view',
        idUser: analyst.idUser,
        name: 'ann',
        subject: 'app 1, preview',
        detail: 'event userAuthorisations',
      },
    ]);
    expect(newest.body.toString()).not.toContain('anna');
  });

  it('The calls of docs/api.md work, and its table has exactly the existing methods', async () => {
    const page = readFileSync(path.join(packageRoot, 'docs/api.md'), 'utf8');
    const section = page.slice(page.indexOf('### Operations'), page.indexOf('### Links'));
    const calls = [...section.matchAll(/^curl .*8081\/api\/operations\/v1\/(\S+)(?: -d (\S+))?$/gm)];
    expect(calls).toHaveLength(2);
    for (const [, target = '', body] of calls) {
      const answer = await call(boss, `operations/v1/${target}`, body === undefined ? {} : { method: 'POST', body });
      expect([target, answer.status]).toEqual([target, 200]);
    }
    const { paths: described } = (await send(port, '/openapi.json')).json as unknown as { paths: Data };
    const told = [...section.matchAll(/`(?:GET |POST )?\.\.\.\/([a-z/]+\.json)`/g)].map(
      ([, name = '']) => `/api/operations/v1/${name}`,
    );
    expect(told.toSorted(byName)).toEqual(
      Object.keys(described)
        .filter((name) => name.includes('/operations/'))
        .toSorted(byName),
    );
  });

  it('Permissions are read at each request, so that a removed operator loses them at once', async () => {
    const last = await addUser(paths, { name: 'last', idAccount: noAccount, canExport: false, operator: true });
    await waitFor('the operator is known', async () => (await look('apps.json', last)).status === 200);
    await removeUser(paths, Number(last.idUser));
    await waitFor('the user is removed', async () => (await look('apps.json', last)).status === 403);
    expect((await change('app/token.json', { idApp: '1' }, last)).status).toBe(403);
  });

  it('Invalid or hostile arguments are refused with their name, and a change requires POST', async () => {
    for (const [target, given, named] of [
      ['app/add.json', { idApp: '1e3', platform: 'web' }, 'idApp'],
      ['app/add.json', { idApp: '7', platform: '__proto__' }, 'platform'],
      ['app/add.json', { idApp: '7', platform: 'web', idAccount: '0' }, 'idAccount'],
      ['app/add.json', { idApp: '7', platform: 'web', title: 'a\u0000b' }, 'title'],
      ['app/add.json', { idApp: '7', platform: 'web', title: 'x'.repeat(256) }, 'title'],
      ['app/add.json', { idApp: '7', platform: 'web', sdkKey: 'a,b' }, 'SDK key'],
      ['app/add.json', { idApp: '7', platform: 'web', tokens: 'x' }, 'tokens'],
      ['app/token.json', { idApp: '../1' }, 'idApp'],
      ['user/add.json', { name: '', idAccount: '1' }, 'name'],
      ['user/add.json', { name: 'x', idAccount: '0' }, 'idAccount'],
      ['user/add.json', { name: 'x' }, 'idAccount'],
      ['user/add.json', { name: 'x', operator: 'yes' }, 'operator'],
      ['user/add.json', { name: 'x', idAccount: '1', operator: 'constructor' }, 'operator'],
      ['user/add.json', { name: 'x', idAccount: '1', canExport: '__proto__' }, 'canExport'],
      ['user/secret.json', { idUser: '-1' }, 'idUser'],
    ] as const) {
      const answer = await change(target, given);
      expect([target, answer.status]).toEqual([target, 400]);
      expect(answer.json?.data?.error?.detail).toContain(named);
    }
    expect((await look('app/token.json?idApp=1')).status).toBe(404);
    expect((await look('apps.json?limit=0')).status).toBe(400);
    expect((await look('apps.json?evil=1')).status).toBe(400);
  });
});
