import { withFormerNames } from '../runtime/former-names.ts';
import { datasets } from '../datasets/dataset.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { dropFailed, readFailedEvents, replayFailedEvents } from '../admin/replay.ts';
import { failureReasons, readFailedFile, failedRowsFolder, listFailedRows } from '../lake/files/failed-events.ts';
import { lakePaths, tablePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { AppError } from '../runtime/errors.ts';
import { createExclusive } from '../runtime/files/durable-file.ts';
import { assertConfirmed, defineDataCommand, yesOption, type CommandGroup, type OpenData } from './command.ts';
import { withEvents } from './lake-engine.ts';
import { file as filePath, oneOf, positive, required } from './option-specs.ts';

const engineLimits = ({ config }: OpenData) => ({ memoryMb: config.duckdbMemoryMb, threads: 1 });

const list = defineDataCommand({
  name: 'list',
  summary: 'list failed events, with reasons',
  isList: true,
  examples: ['failed list'],
  opens: 'lake',
  async run(_given, { paths: { lake: lakeDir }, printResult }) {
    const { failed } = lakePaths(lakeDir);
    for (const event of await readFailedEvents(lakeDir, {})) printResult(event);
    for (const dataset of datasets.values()) {
      const { table } = tablePaths(lakeDir, dataset);
      const { files } = await listFailedRows(failedRowsFolder(failed, table), (await readSnapshot(table)).txns);
      for (const file of files) for (const event of await readFailedFile(file)) printResult(event);
    }
  },
});

const replay = defineDataCommand({
  name: 'replay',
  summary: 'retry failed events',
  examples: ['failed replay'],
  opens: 'lake',
  async run(_given, context) {
    const enricher = context.config.enriches ? await openEnrichment(context.config) : undefined;
    try {
      const replayed = await withEvents(context, engineLimits(context), (events) =>
        replayFailedEvents({ ...events, enricher }),
      );
      return withFormerNames('replay', replayed);
    } finally {
      enricher?.close();
    }
  },
});

const reason = oneOf(failureReasons, 'only events that failed for this reason');
const app = positive('only events of this app');

const exportVerb = defineDataCommand({
  name: 'export',
  summary: 'write failed imported events to a new file, one JSON line per event',
  arguments: { FILE: filePath('file to create') },
  options: { reason, app },
  examples: ['failed export reused.ndjson --reason key_reused'],
  opens: 'lake',
  async run({ FILE: name, reason: given, app: idApp }, { paths }) {
    const events = await readFailedEvents(paths.lake, { reason: given, idApp });
    const text = events.map((event) => `${JSON.stringify(event)}\n`).join('');
    if ((await createExclusive(name, text)) === 'exists')
      throw new AppError('usage', `${name} already exists`, { hint: 'Pass the name of a new file.' });
    return { file: name, events: events.length };
  },
});

const drop = defineDataCommand({
  name: 'drop',
  summary: 'permanently delete failed imported events',
  options: { reason: required(reason), app, ...yesOption },
  examples: ['failed drop --reason key_reused', 'failed drop --reason bad_value --app 7 --yes'],
  opens: 'lake',
  async run({ reason: given, app: idApp, yes }, context) {
    const filter = { reason: given, idApp };
    const { length } = await readFailedEvents(context.paths.lake, filter);
    if (length > 0) await assertConfirmed(`Permanently delete ${length} failed events?`, yes, context);
    const dropped = await withEvents(context, engineLimits(context), (events) => dropFailed(events, filter));
    return { dropped };
  },
});

export const failedCommand: CommandGroup = {
  name: 'failed',
  summary: 'list, retry, export or delete failed events',
  commands: [list, replay, exportVerb, drop],
};
