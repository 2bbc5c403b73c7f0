import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { AccessPaths } from '../../../src/access/access-file.ts';
import { addApp } from '../../../src/access/apps.ts';
import { addUser } from '../../../src/access/users.ts';
import { openAccessReader } from '../../../src/access/store.ts';
import { selectApps, type ExportApp, type ExportSpec } from '../../../src/export/jobs/export-spec.ts';
import { renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';

beforeEach(oneTestIn(2));

/**
 * Access data with thousands of apps in one account. Work is counted, not timed: sorted and searched elements, and
 * parsed characters, on this thread.
 */

const logger = createLogger('silent');
const tokenOf = (idApp: number): string => `token of ${idApp}`;

/** Writes access data of many apps, as commands do. */
function writeApps(count: number): AccessPaths {
  const folder = testFolder();
  const paths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
  const apps = Array.from({ length: count }, (_, index) => count - index).map((idApp) => ({
    idApp,
    platform: 'web',
    title: `App ${idApp}`,
    sdkKey: `key-${idApp}`,
    idAccount: 1,
    tokens: [
      {
        prefix: 'token of',
        sha256: createHash('sha256').update(tokenOf(idApp)).digest('hex'),
        createdAt: new Date(0).toISOString(),
      },
    ],
  }));
  mkdirSync(paths.keys);
  writeFileSync(paths.access, renderChecksummed({ nextIdUser: 1, revision: 1, apps, users: [] }, 2));
  return paths;
}

/** Counts until the end of the test. */
function countWork() {
  const work = { sorted: 0, searched: 0, parsed: 0 };
  const { toSorted, includes } = Array.prototype;
  const parse = JSON.parse.bind(JSON);
  vi.spyOn(Array.prototype, 'toSorted').mockImplementation(function count(this: unknown[], compare) {
    work.sorted += this.length;
    return toSorted.call(this, compare);
  });
  vi.spyOn(Array.prototype, 'includes').mockImplementation(function count(this: unknown[], ...words) {
    work.searched += this.length;
    return includes.call(this, ...words);
  });
  vi.spyOn(JSON, 'parse').mockImplementation((text: string, ...rest) => {
    work.parsed += text.length;
    return parse(text, ...rest) as unknown;
  });
  onTestFinished(() => void vi.restoreAllMocks());
  return work;
}

describe('access data of many apps', () => {
  it('The work of reading access data is linear in the number of apps', async () => {
    const paths = writeApps(2000);
    const work = countWork();
    const reader = await openAccessReader(paths, logger);
    onTestFinished(() => reader.close());
    expect(reader.current().appsOfAccount(1)).toHaveLength(2000);
    expect(work.sorted).toBeLessThanOrEqual(3 * 2000);
  });

  it('A change of access data with 100,000 apps reaches its readers, and a wrong token of any app is rejected', async () => {
    const paths = writeApps(100_000);
    const reader = await openAccessReader(paths, logger);
    onTestFinished(() => reader.close());
    const { token } = await addApp(paths, { idApp: 900_000, platform: 'web', idAccount: 1 }, 0);
    await vi.waitFor(() => expect(reader.current().findAppByToken(900_000, token)).toBeDefined(), { timeout: 10_000 });
    expect(reader.current().findAppByToken(17, tokenOf(17))).toMatchObject({ idApp: 17, title: 'App 17' });
    expect(reader.current().findAppByToken(17, tokenOf(18))).toBeUndefined();
    expect(reader.current().nameAppOfToken(tokenOf(18))).toBeUndefined();
  });

  it('Large access data stays active when its file is damaged', async () => {
    const paths = writeApps(1000);
    const reader = await openAccessReader(paths, logger);
    onTestFinished(() => reader.close());
    writeFileSync(paths.access, `{"version":1,"padding":"${'x'.repeat(100_000)}"`);
    await vi.waitFor(
      () =>
        expect(reader.problems()[0]?.message).toMatch(/access\.json is damaged.*Restore access\.json from a backup/),
      { timeout: 10_000 },
    );
    expect(reader.current().findAppByToken(17, tokenOf(17))).toBeDefined();
  });

  it('Each secret is decrypted only when its user signs in', async () => {
    const paths = writeApps(1000);
    const { idUser, secret } = await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    const reader = await openAccessReader(paths, logger);
    onTestFinished(() => reader.close());
    const other = await addUser(paths, { name: 'bob', idAccount: 1, canExport: true });
    await vi.waitFor(() => expect(reader.current().findUser(other.idUser)?.secret).toBe(other.secret), {
      timeout: 10_000,
    });
    expect(reader.current().findUser(idUser)?.secret).toBe(secret);
    for (const strange of ['0', '01', '3', '', 'x', '1e0']) expect(reader.current().findUser(strange)).toBeUndefined();
  });
});

describe('the apps of an export', () => {
  it('The apps of an export are selected by one lookup per value, not one per app', () => {
    const apps: ExportApp[] = Array.from({ length: 5000 }, (_, index) => ({
      idApp: index + 1,
      sdkKey: `key-${index + 1}`,
      title: '',
      platform: 'web',
      idAccount: 1,
      idProject: index % 2 === 0 ? 5 : undefined,
    }));
    const values = Array.from({ length: 999 }, (_, index) => String(4500 + index));
    const request = {
      idApp: values,
      SDKKey: ['key-1', 'key-2'],
      idAccount: values.concat('1'),
      idProject: values.concat('5'),
    } as unknown as ExportSpec;
    const work = countWork();
    const chosen = selectApps(request, apps);
    expect(work.searched).toBeLessThan(100);
    expect(chosen.map(({ idApp }) => idApp)).toEqual([
      1,
      ...Array.from({ length: 250 }, (_, index) => 4501 + 2 * index),
    ]);
    expect(selectApps({} as ExportSpec, apps)).toHaveLength(5000);
  });
});
