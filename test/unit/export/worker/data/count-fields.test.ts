import { describe, expect, it } from 'vitest';
import { events } from '../../../../../src/datasets/dataset.ts';
import { type ChosenFiles, countFields } from '../../../../../src/export/worker/data/run-data-query.ts';
import type { QueryEngine } from '../../../../../src/export/worker/query-engine.ts';
import type { DataFile, Snapshot } from '../../../../../src/lake/log/snapshot.ts';

const dates = { from: '2025-01-01', to: '2025-12-31' };
const app = { idApp: 7, sdkKey: '', title: '', platform: 'web', idAccount: 1, idProject: undefined } as const;
const plan = {
  question: { ask: 'fields', dates, kind: 'login' },
  apps: [app],
  lakeDir: '',
  limits: { memoryMb: 1, threads: 1 },
} as const;

/** Counts the fields of logins. `own`: rows of row groups that may have rows of the app, by file, the newest first. */
async function count(own: readonly number[]) {
  const files = own.map((_rows, index): DataFile => {
    const name = `f${index}`;
    const time = { event_time: new Date(1_760_000_000_000 - index * 60_000).toISOString() };
    const rest = { sizeBytes: 1, numRecords: 1, sha256: undefined, young: true };
    return { path: name, absolutePath: name, minValues: time, maxValues: time, ...rest };
  });
  let read: readonly string[] = [];
  const engine = {
    rows({ sql }: { readonly sql: string }, names: readonly string[]) {
      if (sql.includes('parquet_metadata'))
        return Promise.resolve(
          names.map((file) => ({ file, rows: own[Number(file.slice(1))] ?? 0 })).filter(({ rows }) => rows > 0),
        );
      read = names.slice(1);
      return Promise.resolve([{ looked: 1, date_from: '2025-10-09', date_to: '2025-10-09' }]);
    },
  } as unknown as QueryEngine;
  const chosenFiles: ChosenFiles = {
    table: 'events',
    files: files.toReversed(),
    snapshot: { emptyFile: 'empty' } as Snapshot,
  };
  const { sampledEvents, isComplete } = await countFields(engine, chosenFiles, plan, {
    dataset: events,
    kind: 'login',
    dates,
  });
  return { read, sampledEvents, isComplete };
}

const many = (rows: number): number[] => Array.from({ length: 501 }, () => rows);

describe('the fill rates of fields', () => {
  it('A file with rows of other apps only is not read, and the count is complete', async () => {
    expect(await count([10, 0, 10])).toEqual({ read: ['f0', 'f2'], sampledEvents: 1, isComplete: true });
    expect(await count([0, 0])).toEqual({ read: [], sampledEvents: 0, isComplete: true });
  });

  it('The newest files are read up to the bound of rows, at least one, without a gap', async () => {
    expect(await count([30_000_000, 1])).toEqual({ read: ['f0'], sampledEvents: 1, isComplete: false });
    expect(await count([15_000_000, 0, 6_000_000, 1])).toEqual({ read: ['f0'], sampledEvents: 1, isComplete: false });
    expect(await count([15_000_000, 5_000_000])).toEqual({ read: ['f0', 'f1'], sampledEvents: 1, isComplete: true });
  });

  it('Files older than the 500 newest are not read, and the count is incomplete even if they have no row of the app', async () => {
    const { read, isComplete } = await count(many(1));
    expect([read.length, isComplete]).toEqual([500, false]);
    expect(await count(many(0))).toEqual({ read: [], sampledEvents: 0, isComplete: false });
  });
});
