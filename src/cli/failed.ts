import { dataPaths } from '../config.ts';
import { datasets } from '../datasets/dataset.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { replayFailed } from '../operate/replay.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { listFailedFiles, readFailedFile } from '../lake/files/failed-events.ts';
import { failedRowsFolder, listFailedRows } from '../lake/files/failed-rows.ts';
import { ensureLake, lakePaths, tablePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { openTable } from '../lake/log/table.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { assertLake } from './data-folder.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary failed list|replay [--data DIR]';

/** `tributary failed list|replay`: the events that could not be written to the lake, and another try to write them. */
export const failedCommand: Command = {
  name: 'failed',
  usage,
  summary: 'list the events that could not be written; try them again',
  async run([verb, ...args], { environment, answer }) {
    const { values } = parseWords(args, [], {}, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    assertLake(config);
    const { lake: lakeDir } = dataPaths(config.dataDir);
    const paths = lakePaths(lakeDir);
    const clock = createClock(config.clockOffsetSeconds);
    switch (verb) {
      case 'list':
        // The folder comes with the compactor's first start.
        if (!(await exists(paths.failed))) return;
        for (const file of await listFailedFiles(paths.failed, paths.table)) {
          for (const event of await readFailedFile(file)) answer(event);
        }
        for (const dataset of datasets.values()) {
          const { table } = tablePaths(lakeDir, dataset);
          const { files } = await listFailedRows(
            failedRowsFolder(paths.failed, table),
            (await readSnapshot(table)).txns,
          );
          for (const file of files) for (const event of await readFailedFile(file)) answer(event);
        }
        return;
      case 'replay': {
        await ensureLake(lakeDir, { clock, retentionMs: config.retentionMs });
        const enricher = config.enriches ? await openEnrichment(config) : undefined;
        const engine = await openCommandEngine(lakeDir, { memoryMb: config.duckdbMemoryMb, threads: 1 });
        try {
          const table = await openTable(paths.table, { clock, crashPoint: noCrashPoint });
          answer(
            await replayFailed({ table, lakeDir, duckdb: engine.duckdb, enricher, clock, crashPoint: noCrashPoint }),
          );
        } finally {
          await engine.close();
          enricher?.close();
        }
        return;
      }
      default:
        throw new AppError('usage', `'failed' takes list or replay, not '${verb ?? ''}'`, { hint: `Usage: ${usage}` });
    }
  },
};
