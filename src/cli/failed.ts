import { dataPaths, type Config } from '../config.ts';
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
import { exists } from '../runtime/files/file-checks.ts';
import { assertLake } from './data-folder.ts';
import { resolveConfig, verb, type CommandContext, type Group } from './command.ts';

function openConfig(data: string | undefined, { environment }: CommandContext): Config {
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
  assertLake(config);
  return config;
}

const list = verb({
  name: 'list',
  summary: 'list the events that could not be written, with the reason',
  isList: true,
  examples: ['failed list'],
  async run({ data }, context) {
    const { lake: lakeDir } = dataPaths(openConfig(data, context).dataDir);
    const paths = lakePaths(lakeDir);
    // The folder comes with the compactor's first start.
    if (!(await exists(paths.failed))) return;
    for (const file of await listFailedFiles(paths.failed, paths.table)) {
      for (const event of await readFailedFile(file)) context.answer(event);
    }
    for (const dataset of datasets.values()) {
      const { table } = tablePaths(lakeDir, dataset);
      const { files } = await listFailedRows(failedRowsFolder(paths.failed, table), (await readSnapshot(table)).txns);
      for (const file of files) for (const event of await readFailedFile(file)) context.answer(event);
    }
  },
});

const replay = verb({
  name: 'replay',
  summary: 'try to write them again',
  examples: ['failed replay'],
  async run({ data }, context) {
    const config = openConfig(data, context);
    const { lake: lakeDir } = dataPaths(config.dataDir);
    const clock = createClock(config.clockOffsetSeconds);
    await ensureLake(lakeDir, { clock, retentionMs: config.retentionMs });
    const enricher = config.enriches ? await openEnrichment(config) : undefined;
    const engine = await openCommandEngine(lakeDir, { memoryMb: config.duckdbMemoryMb, threads: 1 });
    try {
      const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
      context.answer(
        await replayFailed({ table, lakeDir, duckdb: engine.duckdb, enricher, clock, crashPoint: noCrashPoint }),
      );
    } finally {
      await engine.close();
      enricher?.close();
    }
  },
});

/** `tributary failed list|replay`: the events that could not be written to the lake, and another try to write them. */
export const failedCommand: Group = {
  name: 'failed',
  summary: 'list the events that could not be written; try them again',
  verbs: [list, replay],
};
