import { dataPaths, type Config } from '../config.ts';
import { checkLake } from '../lake/check.ts';
import { readHistory, readLakeStats } from '../lake/history.ts';
import { datasets, events, type Dataset } from '../datasets/dataset.ts';
import { tablePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { AppError } from '../runtime/errors.ts';
import { assertLake } from './data-folder.ts';
import { parseId, parseWords, resolveConfig, type Command, type CommandContext } from './command.ts';

const usages = [
  'tributary lake check|stats [--data DIR]',
  'tributary lake files [--table NAME] [--data DIR]',
  'tributary lake log [--limit N] [--table NAME] [--data DIR]',
  'tributary lake changes [--since PLACE] [--table NAME] [--data DIR]',
  'tributary lake repair [--accept-loss] [--data DIR]',
  'tributary lake enrich [--data DIR]',
  'tributary lake snapshot [--root DIR_OR_URL] [--data DIR]',
];
/** In one line, for an error. */
const usage = usages.join(', ');

/** The dataset of a table's name; that of the events where none is given. */
function parseTable(name = events.table): Dataset {
  const dataset = datasets.get(name);
  if (dataset !== undefined) return dataset;
  throw new AppError('usage', `no dataset has the table '${name}'`, {
    hint: `The tables are ${[...datasets.keys()].join(', ')}.`,
  });
}

/** What to do about what `lake check` lists. */
const advice =
  "restore missing and damaged files from a backup, under the same paths; 'tributary lake repair' undoes what another engine has committed (foreign_commit); an orphan_file says itself what to do with it";

/** Mends the lake; the exit code says whether it is whole. */
async function repair(
  config: Config,
  acceptLoss: boolean,
  { answer, note }: Pick<CommandContext, 'answer' | 'note'>,
): Promise<number> {
  const { runLakeRepair } = await import('./lake-repair.ts');
  const repaired = await runLakeRepair(config, acceptLoss);
  answer(repaired);
  const isWhole = [repaired, ...Object.values(repaired.tables ?? {})].every(({ missing }) => missing.length === 0);
  if (!isWhole)
    note(
      "files that the table names are missing: put them back from a backup, or, when there is none, run 'tributary lake repair --accept-loss'",
    );
  return isWhole ? 0 : 1;
}

/**
 * `tributary lake check|log|files|stats|changes`: reads the lake, whether the service runs or not. `check` exits 1 when
 * something is wrong. `tributary lake snapshot` prints the SQL of its views (lake-snapshot.ts). `tributary lake repair`
 * mends it, and exits 1 when files are missing that only a backup can bring back. `tributary lake enrich` fills rows that
 * were stored before (lake-enrich.ts).
 */
export const lakeCommand: Command = {
  name: 'lake',
  usage: usages.join('\n'),
  summary:
    'verify the lake; show its history, its live files, its rows and bytes, what came since; print the SQL of its views; mend it; fill what was stored before',
  details: [
    'check          reads every live file, the log and the hashes of erased ids; exit code 1 and the list when something is wrong',
    'log            the newest commits, 50 unless --limit says more',
    'files, stats   the live files; rows and bytes by kind and date, and by table',
    'changes        how many rows came since a place in the history, SQL that reads them, the place to ask from next time, and up to when it is complete',
    '--since        the place: a version, or `next` of the last answer; all rows when it is left out',
    '--table        the table of a dataset, such as payments; that of the events by default',
    'repair         undoes what another engine has committed, and gives rows of a clock that was ahead a time that has passed',
    '--accept-loss  takes files out of the table that are missing and nowhere to be found',
    'enrich         fills countries, systems, devices and browsers where rows do not say them and their addresses and User-Agents do',
    'snapshot       the SQL of the views over the lake; --root: where its reader finds the lake',
  ],
  async run([verb, ...args], { environment, answer, print, note, stop }) {
    const { values } = parseWords(
      args,
      [],
      {
        limit: { type: 'string' },
        since: { type: 'string' },
        table: { type: 'string' },
        'accept-loss': { type: 'boolean' },
        root: { type: 'string' },
      },
      usage,
    );
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    assertLake(config);
    const lakeDir = dataPaths(config.dataDir).lake;
    switch (verb) {
      case 'check': {
        const report = await checkLake(lakeDir);
        answer(report);
        if (!report.ok) note(advice);
        return report.ok ? 0 : 1;
      }
      case 'repair':
        return await repair(config, values['accept-loss'] === true, { answer, note });
      case 'enrich': {
        const { runLakeEnrich } = await import('./lake-enrich.ts');
        answer(await runLakeEnrich(config, stop));
        return 0;
      }
      case 'log':
        for (const entry of await readHistory(
          lakeDir,
          parseId(values.limit ?? '50', '--limit'),
          parseTable(values.table),
        ))
          answer(entry);
        return 0;
      case 'files': {
        const { files } = await readSnapshot(tablePaths(lakeDir, parseTable(values.table)).table);
        for (const { path, sizeBytes, numRecords, young, minValues, maxValues } of files)
          answer({ path, sizeBytes, numRecords, young, minValues, maxValues });
        return 0;
      }
      case 'changes': {
        const { readChanges } = await import('./lake-changes.ts');
        answer(await readChanges(tablePaths(lakeDir, parseTable(values.table)).table, values.since));
        return 0;
      }
      case 'snapshot': {
        const { renderLakeSnapshot } = await import('./lake-snapshot.ts');
        print(await renderLakeSnapshot(config, values.root));
        return 0;
      }
      case 'stats':
        answer(await readLakeStats(lakeDir));
        return 0;
      default:
        throw new AppError(
          'usage',
          `'lake' takes check, log, files, stats, changes, snapshot, enrich or repair, not '${verb ?? ''}'`,
          {
            hint: `Usage: ${usage}`,
          },
        );
    }
  },
};
