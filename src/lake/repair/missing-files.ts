import path from 'node:path';
import { decodePath, parseStats, type Action, type AddAction } from '../log/actions.ts';
import { lakeStore } from '../files/data-file.ts';
import { tableStore } from '../log/log-files.ts';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import type { Table } from '../log/table.ts';
import { createErasedIdsSearch, type ErasedIdsLocation } from '../event-index/erased-ids.ts';
import { isAppError } from '../../runtime/errors.ts';

export interface MissingFile {
  readonly path: string;
  readonly bytes: number;
  readonly rows: number;
  readonly kind: string;
  /** UTC dates of its events: one, or the first and the last. */
  readonly dates: readonly string[];
}

function describe(add: AddAction): MissingFile {
  const { numRecords, minValues = {}, maxValues = {} } = parseStats(add.stats);
  const bounds = (column: string): string[] => [
    ...new Set([minValues[column], maxValues[column]].map((value) => (typeof value === 'string' ? value : 'unknown'))),
  ];
  return {
    path: decodePath(add.path) ?? add.path,
    bytes: add.size,
    rows: numRecords ?? 0,
    kind: bounds('kind').join(' to '),
    dates: bounds('date'),
  };
}

/** Lists the files of a table that are missing or have another size. */
export async function describeMissing(tableDir: string, adds: Iterable<AddAction>): Promise<MissingFile[]> {
  const store = tableStore(tableDir);
  const missing: MissingFile[] = [];
  await inParallel(adds, 16, async (add) => {
    const file = decodePath(add.path);
    if (file === undefined || (await store.findSize(file)) !== add.size) missing.push(describe(add));
  });
  return missing.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

/** Removes missing files from the table by one commit under the maintenance lock. Their rows count as erased. */
export async function acceptLoss(table: Table, missing: readonly MissingFile[], nowMs: number): Promise<void> {
  const rows = missing.reduce((sum, file) => sum + file.rows, 0);
  const actions: Action[] = missing.map((file) => ({
    remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: true },
  }));
  await table.commit(() => ({
    cause: 'repair',
    actions,
    totals: { stored: -rows, erased: rows },
    metrics: { rows, filesLost: missing.length },
  }));
}

/** Records that the file of erased ids is missing or damaged, under the maintenance lock. Returns whether it was. */
export async function acceptLostErasedIds(table: Table, location: ErasedIdsLocation): Promise<boolean> {
  try {
    await createErasedIdsSearch(location)();
    return false;
  } catch (error) {
    if (!isAppError(error, 'file_damaged')) throw error;
  }
  const erasedIds = { hashes: 0, sha256: '', isPartial: true } as const;
  await table.commit((_, lake) => ({
    cause: 'repair',
    actions: [],
    erasedIds,
    metrics: { hashesLost: lake.erasedIds?.hashes ?? 0 },
  }));
  await lakeStore(path.dirname(table.dir)).remove([path.basename(location.erasedIds)]);
  return true;
}
