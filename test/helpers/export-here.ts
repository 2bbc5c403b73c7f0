import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { ExportApp, ExportSpec } from '../../src/export/jobs/export-spec.ts';
import type { PlanSegment, WorkerLimits, WorkerPlan } from '../../src/export/jobs/worker-messages.ts';
import { runExport } from '../../src/export/worker/run-export.ts';
import { parseCsv } from './export-oracle.ts';
import { testFolder } from './folder.ts';
import { formatRequest } from './format-request.ts';

interface ExportHere {
  /** The apps of the caller; app 1 by default. */
  readonly idApps?: readonly number[];
  readonly segment?: PlanSegment;
  /** Whether the rows keep the order of the files, instead of that of time. */
  readonly inOrderOfFiles?: boolean;
}

const appOf = (idApp: number): ExportApp => ({
  idApp,
  sdkKey: `key-${idApp}`,
  title: `App ${idApp}`,
  platform: 'web',
  idAccount: 1,
  idProject: undefined,
});

/**
 * Plans an export as an attempt gets it, into an empty folder of the running test. `request` overrides members of a
 * request for all custom events, `limits` those of a small result.
 */
export function planHere(
  tableDir: string,
  request: Partial<ExportSpec>,
  {
    idApps = [1],
    segment,
    inOrderOfFiles = false,
    limits = {},
  }: ExportHere & { readonly limits?: Partial<WorkerLimits> } = {},
): WorkerPlan {
  const folder = path.join(testFolder(), 'attempt');
  mkdirSync(folder);
  return {
    request: { ...formatRequest(), ...(inOrderOfFiles ? {} : { order: 'time' }), ...request },
    apps: idApps.map(appOf),
    ...(segment === undefined ? {} : { segment }),
    tableDir,
    folder,
    stem: 'all',
    limits: {
      maxRows: 1_000_000,
      maxBytes: 1024 ** 3,
      singleFileMaxBytes: 1024 ** 2,
      partMaxBytes: 1024 ** 2,
      memoryMb: 256,
      threads: 1,
      ...limits,
    },
    retentionMs: 60_000,
    begunMs: Date.now(),
  };
}

/**
 * Exports from a table in this process as an attempt does; returns the cells of the rows, or the error. `request`: as
 * in `planHere`.
 */
export async function exportHere(
  tableDir: string,
  request: Partial<ExportSpec>,
  given: ExportHere = {},
): Promise<string[][]> {
  const plan = planHere(tableDir, request, given);
  const outcome = await runExport(plan, () => undefined);
  if (outcome.kind !== 'done') throw new Error(JSON.stringify(outcome));
  const [header, ...rows] = outcome.files.flatMap(({ name }) =>
    parseCsv(readFileSync(path.join(plan.folder, name), 'utf8')),
  );
  if (header === undefined) throw new Error('header missing');
  return rows;
}
