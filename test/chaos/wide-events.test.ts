import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { runExport } from '../../src/export/worker/run-export.ts';
import type { ExportSpec } from '../../src/export/jobs/export-spec.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { chaosFigure, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { query, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { testFolder } from '../helpers/folder.ts';
import { waitFor } from '../helpers/wait.ts';
import { publishWideEvents } from '../helpers/wide-events.ts';

/** Events of nearly the maximum size, whose repetitive text compresses well: one hour at 67 per second. */
const rows = chaosFigure('TRIBUTARY_TEST_WIDE_ROWS', { short: 12_000, long: 240_000 });
const publishAtOnce = 6000;
const eventBytes = 9500;
/** The default setting for the long run, the minimum for the short one. */
const memoryMb = isLongRun ? 2048 : 256;
const forMs = isLongRun ? 1_200_000 : 60_000;

const request: ExportSpec = {
  event: 'customEvents',
  selectors: ['eventName', 'params.name', 'params.value'],
  timezone: 'UTC',
  eventTime: {},
  availableAt: {},
  eventNameInvert: false,
  filters: {},
};

test(
  'The widest events, in any number and due at once, are sealed and exported within the configured memory',
  { timeout: 2 * forMs },
  async ({ skip }) => {
    inLongForm(skip);
    const folder = testFolder();
    const { table } = lakePaths(path.join(folder, 'lake'));
    const stream = createMemoryStream();
    let aheadMs = 0;
    const compactor = await startTestCompact(folder, stream, {
      duckdbMemoryMb: memoryMb,
      flushMaxBytes: 128 * 1024 * 1024,
      clock: { nowMs: () => Date.now() + aheadMs },
    });
    onTestFinished(() => compactor.stop());
    for (let published = 0; published < rows;) {
      const more = Math.min(publishAtOnce, rows - published);
      publishWideEvents(stream, { rows: more, bytes: eventBytes });
      published += more;
      await waitFor('the events are stored', () => compactor.facts()['stored'] === published, forMs);
    }
    const files = async () => (await readSnapshot(table)).files;
    expect((await files()).every((file) => file.young)).toBe(true);
    // All rows are due at once.
    aheadMs = 2 * 3_600_000;
    await waitFor('all is sealed', async () => (await files()).every((file) => !file.young), forMs);
    const list = (await files()).map((file) => `'${file.absolutePath}'`).join(', ');
    const [found] =
      await query(`SELECT count(DISTINCT event_id) AS ids, count(*) AS n, count(*) FILTER (WHERE here < before) AS wrong FROM
    (SELECT event_id, (id_app, event_time) AS here, lag((id_app, event_time)) OVER (PARTITION BY filename ORDER BY file_row_number) AS before
     FROM read_parquet([${list}], filename = true, file_row_number = true, hive_partitioning = false))`);
    expect(found).toEqual({ ids: BigInt(rows), n: BigInt(rows), wrong: 0n });
    expect(compactor.facts()['problems']).toEqual([]);

    // Of more apps than are compared one by one, so that the rows are sorted as long as the memory suffices.
    const apps = Array.from({ length: 70 }, (_, index) => ({
      idApp: index + 1,
      sdkKey: '',
      title: '',
      platform: 'web',
      idAccount: 1,
      idProject: undefined,
    }));
    const limits = { maxRows: 1e9, maxBytes: 1e12, singleFileMaxBytes: 1e12, partMaxBytes: 1e9, memoryMb, threads: 2 };
    const report = path.join(folder, 'report');
    mkdirSync(report);
    const outcome = await runExport(
      { request, apps, tableDir: table, folder: report, stem: 'wide', limits, retentionMs: 0, begunMs: 0 },
      () => undefined,
    );
    expect(outcome).toMatchObject({ kind: 'done', files: [{ rows }] });
  },
);
