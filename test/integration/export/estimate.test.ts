import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { resolveReadVersion } from '../../../src/export/worker/read-version.ts';
import { estimate, runDryRunJob } from '../../../src/export/worker/dry-run/run-dry-run.ts';
import { planQuery } from '../../../src/export/worker/query.ts';
import { openQueryEngine } from '../../../src/export/worker/query-engine.ts';
import { createReadFiles } from '../../../src/export/worker/read-files.ts';
import { unnamedFolder } from '../../../src/runtime/files/work-files.ts';
import type { DryRunPlan } from '../../../src/export/jobs/worker-messages.ts';
import { runExport } from '../../../src/export/worker/run-export.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { addSealedFile } from '../../helpers/sealed-file.ts';

const limits = { memoryMb: 512, threads: 1, maxRows: 1e6, maxBytes: 1e9, singleFileMaxBytes: 1e8, partMaxBytes: 1e8 };
const appOf = (idApp: number) => ({
  idApp,
  sdkKey: 'key',
  title: 'app',
  platform: 'web',
  idAccount: 1,
  idProject: undefined,
});

test('The bounds of bytes are close to the real size if rows are certain and their texts need no escapes', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  await addSealedFile(lakeDir, 20_000, 300);
  // One app whose rows are in files with rows of others, and all apps.
  for (const ids of [[3], Array.from({ length: 20 }, (_, n) => n + 1)])
    for (const format of ['csv', 'jsonl'] as const) {
      const plan: DryRunPlan = {
        look: 'estimate',
        request: {
          event: 'customEvents',
          selectors: ['tsEvent', 'eventName', 'customUserId', 'lvid', 'userAgent', 'ipv4', 'age', 'params.value'],
          timezone: 'UTC',
          eventTime: {},
          availableAt: {},
          eventNameInvert: false,
          filters: {},
          format,
        },
        apps: ids.map(appOf),
        tableDir: lakePaths(lakeDir).table,
        limits,
        retentionMs: 1e9,
        begunMs: Date.now(),
      };
      const out = path.join(folder, `${ids.length} ${format}`);
      mkdirSync(out);
      const made = await runExport({ ...plan, folder: out, stem: 'all' }, () => undefined);
      const bytes = made.kind === 'done' ? made.files.reduce((sum, file) => sum + file.bytes, 0) : 0;
      const looked = await runDryRunJob(plan);
      const { atLeast, atMost } = looked.kind === 'estimate' ? looked.estimate.bytes : { atLeast: 0, atMost: 0 };
      expect(bytes).toBeGreaterThan(ids.length * 100_000);
      expect(atLeast).toBeGreaterThan(0.9 * bytes);
      expect(atLeast).toBeLessThanOrEqual(bytes);
      expect(atMost).toBeGreaterThanOrEqual(bytes);
      expect(atMost).toBeLessThan(1.5 * bytes);
    }
});

test('The bounds of bytes have no quotes around integers of the app or the event', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  await addSealedFile(lakeDir, 2000, 300);
  for (const selector of ['countCustomEvent', 'idAccount', 'idProject']) {
    const plan: DryRunPlan = {
      look: 'estimate',
      request: {
        event: 'customEvents',
        selectors: [selector],
        timezone: 'UTC',
        eventTime: {},
        availableAt: {},
        eventNameInvert: false,
        filters: {},
        format: 'jsonl',
      },
      apps: Array.from({ length: 20 }, (_, n) => ({ ...appOf(n + 1), idProject: 12 })),
      tableDir: lakePaths(lakeDir).table,
      limits,
      retentionMs: 1e9,
      begunMs: Date.now(),
    };
    const looked = await runDryRunJob(plan);
    const value = selector === 'idProject' ? '12' : '1';
    const bytes = 2000 * `{"${selector}":${value}}\n`.length;
    const { atLeast, atMost } = looked.kind === 'estimate' ? looked.estimate.bytes : { atLeast: 0, atMost: 0 };
    expect(atLeast).toBe(bytes);
    expect(atMost).toBeGreaterThanOrEqual(bytes);
  }
});

test('An estimate whose count times out is bounded by the rows of the apps and their bytes', async () => {
  const lakeDir = path.join(testFolder(), 'lake');
  await addSealedFile(lakeDir, 20_000, 300);
  const { table: tableDir } = lakePaths(lakeDir);
  const apps = [appOf(3)];
  const plan: DryRunPlan = {
    look: 'estimate',
    request: {
      event: 'customEvents',
      selectors: ['eventName'],
      timezone: 'UTC',
      eventTime: {},
      availableAt: {},
      eventNameInvert: false,
      eventName: ['level_7'],
      filters: {},
    },
    apps,
    tableDir,
    limits: { ...limits, maxRows: 999 },
    retentionMs: 1e9,
    begunMs: Date.now(),
  };
  const readVersion = await resolveReadVersion(plan);
  const query = planQuery(plan, readVersion, { lean: true, cells: 'text' });
  const folders = [tableDir, unnamedFolder];
  const { inline } = query;
  const engine = await openQueryEngine({
    apps,
    inline,
    folders,
    tempDir: '',
    tempMaxBytes: 0,
    memoryMb: 256,
    threads: 1,
  });
  onTestFinished(() => engine.close());
  const look = {
    plan,
    readVersion,
    query,
    engine,
    read: createReadFiles({ plan, ...readVersion }, query),
    verify: () => Promise.resolve(),
  };
  const header = 'eventName\n'.length;
  const ofRow = 'level_7\n'.length;
  const told = await estimate(look, { countMs: 0, sampleMs: 60_000 });
  expect(told).toMatchObject({
    rows: { atLeast: 0, expected: null, atMost: 1000 },
    bytes: { atLeast: header, expected: null, atMost: header + 1080 * ofRow },
    overLimits: [{ limit: 'rows', isCertain: false }],
  });
  expect(await estimate(look, { countMs: 0, sampleMs: 0 })).toMatchObject({
    rows: { atLeast: 0, expected: null, atMost: null },
    bytes: { atLeast: header, expected: null, atMost: null },
  });
});
