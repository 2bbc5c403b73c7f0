import { appendFileSync, mkdirSync, readdirSync, renameSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  createRefusalWriter,
  readRefusals,
  removeRefusals,
  sweepRefusals,
  type BodyPolicy,
  type RefusalRecord,
} from '../../../src/refusals/refusal-files.ts';
import { testFolder } from '../../helpers/folder.ts';

const dayMs = 86_400_000;
const nowMs = Date.parse('2026-03-01T12:00:00Z');

const record = (atMs: number, detail = 'd'): RefusalRecord => ({
  time: new Date(atMs).toISOString(),
  method: 'login',
  status: 400,
  error: 'Bad Request',
  detail,
  errors: [],
  bytes: 2,
  hasIdempotencyKey: false,
  isValidation: false,
  requests: 1,
});

const burst = (atMs: number): RefusalRecord[] =>
  Array.from({ length: 20 }, (_, n) => record(atMs, `${n} ${'é'.repeat(3500)}`));

const bytesBelow = (folder: string): number =>
  readdirSync(folder).reduce((sum, name) => sum + statSync(path.join(folder, name)).size, 0);

describe('the files of refusals', () => {
  it('The records of an app from several processes are read together, newest first', async () => {
    const folder = testFolder();
    const [one, two] = [createRefusalWriter(folder, 'redacted'), createRefusalWriter(folder, 'redacted')];
    await one.append(1, [record(nowMs, 'a')], nowMs);
    await two.append(1, [record(nowMs + 1, 'b')], nowMs + 1);
    await one.append(1, [record(nowMs + 2, 'c')], nowMs + 2);
    await one.append(2, [record(nowMs + 3, 'foreign')], nowMs + 3);
    const read = async (idApp: number, most: number) =>
      (
        await readRefusals({ folder, ageMs: dayMs, bodies: 'redacted' as const }, idApp, { nowMs: nowMs + 5, most })
      ).map(({ detail }) => detail);
    expect(await read(1, 10)).toEqual(['c', 'b', 'a']);
    expect(await read(1, 2)).toEqual(['c', 'b']);
    expect(await read(3, 10)).toEqual([]);
    const [name = ''] = readdirSync(path.join(folder, '1'));
    expect(statSync(path.join(folder, '1', name)).mode & 0o777).toBe(0o600);
    expect(statSync(path.join(folder, '1')).mode & 0o777).toBe(0o700);
  });

  it('A flood of an app fills only its own share of the folder, which keeps the newest records', async () => {
    const folder = testFolder();
    const writer = createRefusalWriter(folder, 'redacted');
    await writer.append(2, [record(nowMs, 'quiet')], nowMs);
    for (let n = 0; n < 600; n += 1) await writer.append(1, [record(nowMs + n, `${n} ${'x'.repeat(800)}`)], nowMs + n);
    expect(bytesBelow(path.join(folder, '1'))).toBeLessThanOrEqual(256 * 1024);
    const kept = { folder, ageMs: dayMs, bodies: 'redacted' as const };
    const [newest] = await readRefusals(kept, 1, { nowMs: nowMs + 2000, most: 10 });
    expect(newest?.detail).toMatch(/^599 /);
    expect(await readRefusals(kept, 2, { nowMs, most: 10 })).toHaveLength(1);
  });

  it('A burst of any size keeps an app within its limit', async () => {
    const folder = testFolder();
    const writer = createRefusalWriter(folder, 'redacted');
    for (let n = 0; n < 5; n += 1) {
      await writer.append(1, burst(nowMs + n), nowMs + n);
      expect(bytesBelow(path.join(folder, '1'))).toBeLessThanOrEqual(256 * 1024);
    }
    expect(
      await readRefusals({ folder, ageMs: dayMs, bodies: 'redacted' as const }, 1, { nowMs: nowMs + 10, most: 20 }),
    ).toHaveLength(20);
  });

  it('Failed writes do not begin new files, and a truncated line damages no later record', async () => {
    const folder = testFolder();
    const writer = createRefusalWriter(folder, 'redacted');
    await writer.append(1, [record(nowMs, 'first')], nowMs);
    const [name = ''] = readdirSync(path.join(folder, '1'));
    const file = path.join(folder, '1', name);
    renameSync(file, `${file}.aside`);
    mkdirSync(file);
    for (let n = 1; n < 5; n += 1)
      await expect(writer.append(1, [record(nowMs + n)], nowMs + n)).rejects.toThrow('EISDIR');
    expect(readdirSync(path.join(folder, '1'))).toHaveLength(2);
    rmdirSync(file);
    renameSync(`${file}.aside`, file);
    appendFileSync(file, '\n{"time":"2026');
    await writer.append(1, [record(nowMs + 9, 'last')], nowMs + 9);
    const kept = await readRefusals({ folder, ageMs: dayMs, bodies: 'redacted' as const }, 1, {
      nowMs: nowMs + 10,
      most: 10,
    });
    expect(kept.map(({ detail }) => detail)).toEqual(['last', 'first']);
  });

  it('Old records expire at once, and the sweep removes their files', async () => {
    const folder = testFolder();
    const writer = createRefusalWriter(folder, 'redacted');
    const kept = { folder, ageMs: dayMs, bodies: 'redacted' as const };
    await writer.append(1, [record(nowMs)], nowMs);
    await writer.append(2, [record(nowMs + dayMs)], nowMs + dayMs);
    expect(await readRefusals(kept, 1, { nowMs: nowMs + dayMs + 1, most: 10 })).toEqual([]);
    await sweepRefusals(kept, nowMs + dayMs + 1);
    expect(readdirSync(folder)).toEqual(['1', '2']);
    await sweepRefusals(kept, nowMs + dayMs + 3_600_001);
    expect(readdirSync(folder)).toEqual(['2']);
    // Written while the clock was far ahead.
    await sweepRefusals(kept, nowMs - 10 * dayMs);
    expect(readdirSync(folder)).toEqual([]);
    await writer.append(1, [record(nowMs)], nowMs);
    expect(await readRefusals(kept, 1, { nowMs, most: 10 })).toHaveLength(1);
  });

  it('Records that show more of bodies than the current policy are not returned, and the next sweep removes them', async () => {
    const folder = testFolder();
    for (const bodies of ['on', 'redacted', 'off'] as const)
      await createRefusalWriter(folder, bodies).append(1, [record(nowMs, bodies)], nowMs);
    const read = async (bodies: BodyPolicy) =>
      (await readRefusals({ folder, ageMs: dayMs, bodies }, 1, { nowMs, most: 10 })).map(({ detail }) => detail);
    expect((await read('on')).toSorted()).toEqual(['off', 'on', 'redacted']);
    expect((await read('redacted')).toSorted()).toEqual(['off', 'redacted']);
    expect(await read('off')).toEqual(['off']);
    await sweepRefusals({ folder, ageMs: dayMs, bodies: 'redacted' }, nowMs);
    expect((await read('on')).toSorted()).toEqual(['off', 'redacted']);
    await sweepRefusals({ folder, ageMs: dayMs, bodies: 'on' }, nowMs);
    expect(await read('on')).toHaveLength(2);
  });

  it('A truncated, damaged or unknown line is skipped, and so is an unknown file', async () => {
    const folder = testFolder();
    await createRefusalWriter(folder, 'redacted').append(1, [record(nowMs)], nowMs);
    const [name = ''] = readdirSync(path.join(folder, '1'));
    appendFileSync(path.join(folder, '1', name), '\n[1]\n{"time":"no time"}\n{"time":"2026');
    writeFileSync(path.join(folder, '1', 'notes.txt'), 'x');
    mkdirSync(path.join(folder, 'lost+found'));
    expect(
      await readRefusals({ folder, ageMs: dayMs, bodies: 'redacted' as const }, 1, { nowMs, most: 10 }),
    ).toHaveLength(1);
    await sweepRefusals({ folder, ageMs: dayMs, bodies: 'redacted' as const }, nowMs);
    expect(readdirSync(folder)).toEqual(['1', 'lost+found']);
  });

  it('The records of some or of all apps are removed permanently, and writers then continue', async () => {
    const folder = testFolder();
    const writer = createRefusalWriter(folder, 'redacted');
    for (const idApp of [1, 2]) await writer.append(idApp, [record(nowMs, 'before')], nowMs);
    expect(await removeRefusals(folder, [1])).toBe(true);
    expect(readdirSync(folder)).toEqual(['2']);
    expect(await removeRefusals(folder)).toBe(true);
    expect(await removeRefusals(folder)).toBe(false);
    await writer.append(1, [record(nowMs, 'after')], nowMs);
    const [found, ...others] = await readRefusals({ folder, ageMs: dayMs, bodies: 'redacted' as const }, 1, {
      nowMs,
      most: 10,
    });
    expect([found?.detail, others]).toEqual(['after', []]);
  });
});
