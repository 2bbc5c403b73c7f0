import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findAccessFile } from '../../src/access/access-file.ts';
import { addUser, rotateUserSecret } from '../../src/access/users.ts';
import { importFile } from '../../src/client/import-file.ts';
import { statePath } from '../../src/client/import-state.ts';
import { dataPaths } from '../../src/config.ts';
import { parsePipeline } from '../../src/datasets/pipeline-file.ts';
import { createRandom } from '../../src/demo/random.ts';
import { ensureLake, lakePaths, listQuarantined } from '../../src/lake/lake.ts';
import { openJobRecords } from '../../src/reports/report-records.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { parseChecksummed, renameMembers, renderChecksummed } from '../../src/runtime/files/checksummed-json.ts';
import { openStore } from '../../src/runtime/store/open-store.ts';
import { testFolder } from '../helpers/folder.ts';
import { createModel, emptyState, importOptions } from '../helpers/import-model.ts';

type Members = Readonly<Record<string, unknown>>;

const onWait = (): void => undefined;
const write = (folder: string, name: string): void => writeFileSync(path.join(folder, name), folder);
const parse = (kind: Members): unknown =>
  parsePipeline('p.json', {
    table: 'events',
    description: 'x',
    kinds: { login: { schema: 's', ...kind } },
    sealing: { partitionBy: ['kind'], sortBy: ['id_app'] },
    exports: {},
  }).kinds['login'];

describe('files of version 0.3', () => {
  it('The secret of a user is read as sealedSecret and encryptedSecret, and written so that version 0.3 reads it', async () => {
    const paths = dataPaths(testFolder());
    await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    const read = (): { users: Members[] } => JSON.parse(readFileSync(paths.access, 'utf8')) as { users: Members[] };
    const [{ sealedSecret, ...user } = {}] = read().users;
    expect(sealedSecret).toMatch(/./);
    expect(user).not.toHaveProperty('encryptedSecret');
    const { sha256: _, ...document } = read() as unknown as Members;
    writeFileSync(
      paths.access,
      renderChecksummed({ ...document, users: [{ ...user, encryptedSecret: sealedSecret }] }),
    );
    expect((await findAccessFile(paths))?.users).toEqual([{ ...user, encryptedSecret: sealedSecret }]);
    await rotateUserSecret(paths, 1);
    expect(Object.keys(read().users[0] ?? {})).toEqual(Object.keys({ ...user, sealedSecret }));
  });

  it('A kind of a pipeline has allowsDeviceOnly also by the name ofDevice', () => {
    for (const name of ['ofDevice', 'allowsDeviceOnly'])
      expect(parse({ [name]: true })).toEqual({ schema: 's', allowsDeviceOnly: true, key: [], values: {} });
    expect(() => parse({ ofDevice: 'yes' })).toThrow('kinds.login.allowsDeviceOnly must be true or false');
  });

  it('The slot of an export request has mayBeIncomplete also by the name mayLack', async () => {
    const reports = testFolder();
    const slot = { idSchedule: '1', slot: 20_000, name: '2024-10-04' };
    const job = {
      id: 7,
      idUser: '1',
      idAccount: 1,
      createdMs: 1,
      state: 'queued',
      attempts: 0,
      event: 'hits',
      nonce: '0'.repeat(32),
      request: {},
    };
    mkdirSync(path.join(reports, '7'));
    for (const name of ['mayLack', 'mayBeIncomplete']) {
      writeFileSync(
        path.join(reports, '7', 'job.json'),
        renderChecksummed({ ...job, slot: { ...slot, [name]: true } }),
      );
      expect(await openJobRecords(openStore(reports)).get('7')).toEqual({
        ...job,
        slot: { ...slot, mayBeIncomplete: true },
      });
    }
  });

  it('An import resumes from a state with settled, sendable and doubtSinceMs', async () => {
    const model = createModel(createRandom(1), emptyState, true);
    const file = path.join(testFolder(), 'events.ndjson');
    writeFileSync(file, Array.from({ length: 300 }, (_, n) => `${JSON.stringify({ n })}\n`).join(''));
    const stop = new AbortController();
    const options = importOptions({ nowMs: model.nowMs, signal: stop.signal });
    const interrupted = await importFile(file, model.service, options, { onProgress: () => stop.abort(), onWait });
    expect(interrupted).toMatchObject({ isInterrupted: true });
    const state = parseChecksummed(readFileSync(statePath(file), 'utf8'));
    const { acknowledgedThrough: settled, sendLimit: sendable, version: _, ...others } = state;
    expect(sendable).toBeGreaterThan(0);
    const former = { ...others, format: 1, settled, sendable, doubtSinceMs: model.nowMs() };
    writeFileSync(statePath(file), renderChecksummed(former, 2));
    const signal = new AbortController().signal;
    const done = await importFile(file, model.service, { ...options, signal }, { onProgress: () => undefined, onWait });
    expect(done).toMatchObject({ stored: 300, isInterrupted: false });
    expect([...model.service.stored.values()].filter((times) => times !== 1)).toEqual([]);
    expect(parseChecksummed(readFileSync(statePath(file), 'utf8'))).toMatchObject({
      format: 2,
      acknowledgedThrough: { stored: 300 },
      unconfirmedSinceMs: former.doubtSinceMs,
    });
  });

  it('The start moves quarantined files from their former folder, and overwrites none', async () => {
    const lakeDir = path.join(testFolder(), 'lake');
    const { quarantine, formerQuarantine } = lakePaths(lakeDir);
    const options = { clock: createClock(0), retentionMs: 86_400_000 };
    for (const folder of [quarantine, formerQuarantine]) mkdirSync(folder, { recursive: true });
    write(formerQuarantine, 'a.parquet');
    write(formerQuarantine, 'both.parquet');
    write(quarantine, 'both.parquet');
    const all = [path.join(quarantine, 'both.parquet'), path.join(formerQuarantine, 'both.parquet')];
    expect(await listQuarantined(lakeDir)).toEqual([all[0], path.join(formerQuarantine, 'a.parquet'), all[1]]);
    await ensureLake(lakeDir, options);
    expect((await listQuarantined(lakeDir)).toSorted()).toEqual(
      [path.join(quarantine, 'a.parquet'), ...all].toSorted(),
    );
    expect(readFileSync(all[0] ?? '', 'utf8')).toBe(quarantine);
    rmSync(all[0] ?? '');
    await ensureLake(lakeDir, options);
    expect(readFileSync(all[0] ?? '', 'utf8')).toBe(formerQuarantine);
    expect(existsSync(formerQuarantine)).toBe(false);
  });
});

it('Of a former and a current name in one record, the current one counts, in either order', () => {
  const names = { old: 'current' };
  expect(renameMembers({ old: 1, current: 2, other: 3 }, names)).toEqual({ current: 2, other: 3 });
  expect(renameMembers({ current: 2, old: 1 }, names)).toEqual({ current: 2 });
  expect(renameMembers({ old: 1 }, names)).toEqual({ current: 1 });
});
