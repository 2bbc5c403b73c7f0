import { dataPaths, type Config } from '../config.ts';
import { checkLake } from '../lake/check.ts';
import { readHistory, readLakeStats } from '../lake/history.ts';
import { datasets, events } from '../datasets/dataset.ts';
import { tablePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { assertLake } from './data-folder.ts';
import { resolveConfig, verb, type CommandContext, type Group } from './command.ts';
import { flag, oneOf, positive, text, withDefault } from './words.ts';

const table = withDefault(oneOf([...datasets.keys()], 'the table', 'NAME'), events.table);

/** The settings of a data folder that has a lake. Errors: those of `resolveConfig`, `not_found`. */
function openConfig(data: string | undefined, { environment }: CommandContext): Config {
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
  assertLake(config);
  return config;
}

/** The folder of the lake of a data folder. Errors: those of `openConfig`. */
const openLakeDir = (data: string | undefined, context: CommandContext): string =>
  dataPaths(openConfig(data, context).dataDir).lake;

/** The folder of a table of the lake. Errors: those of `openConfig`. */
const openTableDir = (data: string | undefined, name: string, context: CommandContext): string =>
  tablePaths(openLakeDir(data, context), datasets.get(name) ?? events).table;

const check = verb({
  name: 'check',
  summary: 'read every live file, the log and the hashes of erased ids, and list what is wrong',
  examples: ['lake check'],
  exitCodes: { 1: 'something is wrong: the answer lists it' },
  async run({ data }, context) {
    const report = await checkLake(openLakeDir(data, context));
    context.answer(report);
    if (report.ok) return 0;
    context.note(
      "restore missing and damaged files from a backup, under the same paths; 'tributary lake repair' undoes what another engine has committed (foreign_commit); an orphan_file says itself what to do with it",
    );
    return 1;
  },
});

const stats = verb({
  name: 'stats',
  summary: 'show rows and bytes by kind and date, and by table',
  examples: ['lake stats'],
  async run({ data }, context) {
    context.answer(await readLakeStats(openLakeDir(data, context)));
  },
});

const files = verb({
  name: 'files',
  summary: 'list the live files of a table',
  isList: true,
  options: { table },
  examples: ['lake files', 'lake files --table payments'],
  async run({ table: name, data }, context) {
    const snapshot = await readSnapshot(openTableDir(data, name, context));
    for (const { path, sizeBytes, numRecords, young, minValues, maxValues } of snapshot.files)
      context.answer({ path, sizeBytes, numRecords, young, minValues, maxValues });
  },
});

const log = verb({
  name: 'log',
  summary: 'list the newest commits of a table',
  isList: true,
  options: { limit: withDefault(positive('so many'), 50), table },
  examples: ['lake log --limit 10'],
  async run({ limit, table: name, data }, context) {
    const lakeDir = openLakeDir(data, context);
    for (const entry of await readHistory(lakeDir, limit, datasets.get(name) ?? events)) context.answer(entry);
  },
});

const changes = verb({
  name: 'changes',
  summary: 'show how many rows came since a place in the history, and SQL that reads them',
  details: ['Answers the place to ask from next time, and up to when what it read is complete, too.'],
  options: { since: text('a version, or `next` of the last answer; all rows when it is left out', 'PLACE'), table },
  examples: ['lake changes --since 12'],
  async run({ since, table: name, data }, context) {
    const tableDir = openTableDir(data, name, context);
    const { readChanges } = await import('./lake-changes.ts');
    context.answer(await readChanges(tableDir, since));
  },
});

const repair = verb({
  name: 'repair',
  summary: 'undo what another engine has committed, and give rows of a clock that was ahead a time that has passed',
  options: { acceptLoss: flag('takes files out of the table that are missing and nowhere to be found') },
  examples: ['lake repair'],
  exitCodes: { 1: 'files are missing that only a backup can bring back' },
  async run({ acceptLoss, data }, context) {
    const config = openConfig(data, context);
    const { runLakeRepair } = await import('./lake-repair.ts');
    const repaired = await runLakeRepair(config, acceptLoss);
    context.answer(repaired);
    if ([repaired, ...Object.values(repaired.tables ?? {})].every(({ missing }) => missing.length === 0)) return 0;
    context.note(
      "files that the table names are missing: put them back from a backup, or, when there is none, run 'tributary lake repair --accept-loss'",
    );
    return 1;
  },
});

const enrich = verb({
  name: 'enrich',
  summary:
    'fill countries, systems, devices and browsers where rows do not say them and their addresses and User-Agents do',
  examples: ['lake enrich'],
  async run({ data }, context) {
    const config = openConfig(data, context);
    const { runLakeEnrich } = await import('./lake-enrich.ts');
    context.answer(await runLakeEnrich(config, context.stop));
  },
});

const snapshot = verb({
  name: 'snapshot',
  summary: 'print the SQL of the views over the lake',
  options: { root: text('where its reader finds the lake', 'DIR_OR_URL') },
  examples: ['lake snapshot > lake.sql', 'lake snapshot --root s3://bucket/lake'],
  async run({ root, data }, context) {
    const config = openConfig(data, context);
    const { renderLakeSnapshot } = await import('./lake-snapshot.ts');
    context.print(await renderLakeSnapshot(config, root));
  },
});

/** `tributary lake`: reads the lake, and mends it, whether the service runs or not. */
export const lakeCommand: Group = {
  name: 'lake',
  summary: 'verify the lake, show its files, history, rows and what came since; mend it',
  verbs: [check, stats, files, log, changes, repair, enrich, snapshot],
};
