import { dataPaths, type Config } from '../config.ts';
import { datasets } from '../datasets/dataset.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { dropFailed, readFailedEvents } from '../operate/drop-failed.ts';
import { replayFailed } from '../operate/replay.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { failureReasons, readFailedFile, failedRowsFolder, listFailedRows } from '../lake/files/failed-events.ts';
import { ensureLake, lakePaths, tablePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { openTable } from '../lake/log/table.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { createExclusive } from '../runtime/files/durable-file.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { assertConfirmed, yesOption, verb, type CommandContext, type Group, openLake } from './command.ts';
import { file as filePath, oneOf, positive, required } from './words.ts';

function openConfig(data: string | undefined, { environment }: CommandContext): Config {
  const { config } = openLake(data, { environment });
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
    for (const event of await readFailedEvents(lakeDir, {})) context.answer(event);
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

const reason = oneOf(failureReasons, 'those that failed for this reason');
const app = positive('those of one app');

const exportVerb = verb({
  name: 'export',
  summary:
    'write imported events that could not be written to the lake to a new file, a line each as failed list has it',
  words: { FILE: filePath('the file, which must not exist') },
  options: { reason, app },
  examples: ['failed export reused.ndjson --reason key_reused'],
  async run({ FILE: name, reason: given, app: idApp, data }, context) {
    const { lake: lakeDir } = dataPaths(openConfig(data, context).dataDir);
    const events = await readFailedEvents(lakeDir, { reason: given, idApp });
    const text = events.map((event) => `${JSON.stringify(event)}\n`).join('');
    if ((await createExclusive(name, text)) === 'exists')
      throw new AppError('usage', `${name} exists`, { hint: 'Pass the name of a new file.' });
    context.answer({ file: name, events: events.length });
  },
});

const drop = verb({
  name: 'drop',
  summary: 'remove imported events that could not be written to the lake and never will be, for good',
  options: { reason: required(reason), app, ...yesOption },
  examples: ['failed drop --reason key_reused', 'failed drop --reason bad_value --app 7 --yes'],
  async run({ reason: given, app: idApp, yes, data }, context) {
    const config = openConfig(data, context);
    const { lake: lakeDir } = dataPaths(config.dataDir);
    const filter = { reason: given, idApp };
    const { length } = await readFailedEvents(lakeDir, filter);
    if (length > 0) await assertConfirmed(`Remove ${length} failed events?`, { yes }, context);
    const clock = createClock(config.clockOffsetSeconds);
    await ensureLake(lakeDir, { clock, retentionMs: config.retentionMs });
    const engine = await openCommandEngine(lakeDir, { memoryMb: config.duckdbMemoryMb, threads: 1 });
    try {
      const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
      context.answer({
        dropped: await dropFailed({ table, lakeDir, duckdb: engine.duckdb, crashPoint: noCrashPoint }, filter),
      });
    } finally {
      await engine.close();
    }
  },
});

/** `tributary failed list|replay|export|drop`: the events that could not be written to the lake. */
export const failedCommand: Group = {
  name: 'failed',
  summary: 'list the events that could not be written; try them again, export or remove them',
  verbs: [list, replay, exportVerb, drop],
};
