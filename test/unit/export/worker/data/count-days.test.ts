import { describe, expect, it } from 'vitest';
import { countDays, sumDays, type ChosenFiles } from '../../../../../src/export/worker/data/run-data-query.ts';
import type { QueryEngine } from '../../../../../src/export/worker/query-engine.ts';
import type { DataFile, Snapshot } from '../../../../../src/lake/log/snapshot.ts';

/** A file whose rows are of one app, kind and day by default. */
function fileOf(
  name: string,
  { min = {}, max = {}, rows = 10 }: { min?: object; max?: object; rows?: number } = {},
): DataFile {
  const values = { id_app: 7, kind: 'login', date: '2025-05-01' };
  return {
    path: name,
    absolutePath: name,
    sizeBytes: 1,
    numRecords: rows,
    minValues: { ...values, ...min },
    maxValues: { ...values, ...max },
    sha256: undefined,
    young: false,
  };
}

const app = { sdkKey: '', title: '', platform: 'web', idAccount: 1, idProject: undefined };
const plan = {
  question: { ask: 'volume', dates: { from: '2025-05-01', to: '2025-05-02' } },
  apps: [{ ...app, idApp: 7 }],
  lakeDir: '',
  limits: { memoryMb: 1, threads: 1 },
} as const;

/** Counts files; `read` are the files that the engine reads. */
async function count(files: readonly DataFile[], table = 'events') {
  const read: string[] = [];
  const engine = {
    rows(_statement: unknown, names: readonly string[]) {
      read.push(...names.slice(1));
      return Promise.resolve([]);
    },
  } as unknown as QueryEngine;
  const chosenFiles: ChosenFiles = { table, files, snapshot: { emptyFile: 'empty' } as Snapshot };
  return { days: await countDays(engine, chosenFiles, plan, plan.question.dates), read };
}

describe('events by day and kind', () => {
  it('A file of one app, kind and day is counted by the log, without being read', async () => {
    expect(await count([fileOf('a'), fileOf('b', { rows: 5 })])).toEqual({
      days: [
        { date: '2025-05-01', kind: 'login', events: 10 },
        { date: '2025-05-01', kind: 'login', events: 5 },
      ],
      read: [],
    });
    expect(
      (await count([fileOf('a', { min: { kind: undefined }, max: { kind: undefined } })], 'payments')).days,
    ).toEqual([{ date: '2025-05-01', kind: 'payments', events: 10 }]);
  });

  it('A file that has, or may have, other rows is read', async () => {
    const mixed = [
      fileOf('apps', { max: { id_app: 8 } }),
      fileOf('foreign', { min: { id_app: 8 }, max: { id_app: 8 } }),
      fileOf('kinds', { max: { kind: 'registration' } }),
      fileOf('days', { max: { date: '2025-05-02' } }),
      fileOf('unknown', { min: { date: undefined }, max: { date: undefined } }),
    ];
    expect((await count(mixed)).read).toEqual(['apps', 'foreign', 'kinds', 'days', 'unknown']);
  });

  it('Other days do not count, and the same day and kind of several files are one row', async () => {
    const late = { date: '2025-05-03' };
    expect(await count([fileOf('late', { min: late, max: late })])).toEqual({ days: [], read: [] });
    expect(
      sumDays([
        { date: '2025-05-02', kind: 'login', events: 1 },
        { date: '2025-05-01', kind: 'login', events: 2 },
        { date: '2025-05-02', kind: 'login', events: 3 },
      ]),
    ).toEqual([
      { date: '2025-05-01', kind: 'login', events: 2 },
      { date: '2025-05-02', kind: 'login', events: 4 },
    ]);
  });
});
