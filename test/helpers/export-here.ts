import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { ExportApp, ExportSpec } from '../../src/export/jobs/export-spec.ts';
import type { PlanSegment } from '../../src/export/jobs/worker-messages.ts';
import { runExport } from '../../src/export/worker/run-export.ts';
import { parseCsv } from './export-oracle.ts';
import { testFolder } from './folder.ts';
import { formatRequest } from './format-request.ts';

interface ExportHere {
  /** The apps of the caller; app 1 by default. */
  readonly idApps?: readonly number[];
  readonly segment?: PlanSegment;
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
 * Exports from a table in this process as an attempt does; returns the cells of the rows, or the error. `request`
 * overrides members of a request for all custom events.
 */
export async function exportHere(
  tableDir: string,
  request: Partial<ExportSpec>,
  { idApps = [1], segment }: ExportHere = {},
): Promise<string[][]> {
  const folder = path.join(testFolder(), 'attempt');
  mkdirSync(folder);
  const outcome = await runExport(
    {
      request: { ...formatRequest(), order: 'time', ...request },
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
      },
      retentionMs: 60_000,
      begunMs: Date.now(),
    },
    () => undefined,
  );
  if (outcome.kind !== 'done') throw new Error(JSON.stringify(outcome));
  const [header, ...rows] = outcome.files.flatMap(({ name }) =>
    parseCsv(readFileSync(path.join(folder, name), 'utf8')),
  );
  if (header === undefined) throw new Error('header missing');
  return rows;
}
