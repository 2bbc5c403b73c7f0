import path from 'node:path';
import { listApps } from '../access/apps.ts';
import { datasets, type Dataset } from '../datasets/dataset.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { ensureLake, hasTable, openDatasetTable, tablePaths } from '../lake/lake.ts';
import type { Table } from '../lake/log/table.ts';
import { parseFieldMap, type FieldMap } from '../admin/load/field-rules.ts';
import { findLoadMap, loadMaps } from '../datasets/dictionaries.ts';
import { listLoads, undoLoad } from '../admin/load/undo-load.ts';
import { loadFile, type LoadDependencies, type LoadOptions } from '../admin/load/load.ts';
import type { LoadProgress } from '../admin/load/stage-rows.ts';
import { sourceFormats } from '../admin/load/recognize.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { getTextFile, readConfirmedInput, completionDescriptor } from '../runtime/files/input-file.ts';
import {
  defineDataCommand,
  type CommandContext,
  type DataContext,
  type ParsedOptions,
  type CommandGroup,
} from './command.ts';
import { file, flag, oneOf, parsed, positive, failUsage, many, text } from './option-specs.ts';
import { loadTitles } from '../admin/lists/load-titles.ts';
import { engineLimits } from './lake-engine.ts';
import { printRejectedLists, openList, toListOptions } from './segment.ts';
import { defined } from '../runtime/files/checksummed-json.ts';

const loadable: readonly Dataset[] = [...datasets.values()].filter(({ isLoadable }) => isLoadable);

const badRowsLimit = 100_000;

function parseMaxBad(value: string): number {
  if (/^\d{1,6}$/.test(value) && Number(value) <= badRowsLimit) return Number(value);
  return failUsage(`--max-bad must be a number from 0 to ${badRowsLimit}, not '${value}'`);
}

const loadOptions = {
  map: file(
    `JSON file with the field of each column, null to drop it; or ${loadMaps.installs.join(', ')} for their raw files`,
  ),
  app: positive('app id of rows without idApp and SDKKey', 'ID'),
  maxBad: parsed('maximum number of bad rows, which are kept as failed rows (0)', 'N', parseMaxBad),
  restoreErased: flag('store erased rows again'),
  format: oneOf(sourceFormats, 'format of the files (by their names)'),
  allowEmpty: flag('accept an empty file as a file without rows'),
  // For ops/load-routes.ts, which forwards the input.
  byHttp: {
    ...flag('report errors as JSON, and require the end of standard input to be confirmed'),
    isHidden: true,
  },
} as const;

async function readMap(name: string, { table }: Dataset): Promise<FieldMap> {
  const hint = 'Pass a JSON object with the field of each column, or null to drop it: {"sum": "total", "note": null}.';
  try {
    const map = parseFieldMap(findLoadMap(table, name) ?? JSON.parse(await getTextFile(name)));
    if (typeof map !== 'string') return map;
    throw new Error(map);
  } catch (error) {
    throw new AppError('usage', `cannot use --map ${name}: ${describeError(error)}`, { hint });
  }
}

type LoadArguments = Omit<ParsedOptions<typeof loadOptions>, 'data'>;

async function toOptions(
  { map, app, maxBad, format, restoreErased, allowEmpty }: LoadArguments,
  dataset: Dataset,
): Promise<LoadOptions> {
  return {
    ...(map === undefined ? {} : { map: await readMap(map, dataset) }),
    ...defined({ idApp: app, maxBad, format }),
    restoreErased,
    allowsEmpty: allowEmpty,
  };
}

const phases: Readonly<Record<LoadProgress['phase'], string>> = {
  hash: 'comparing the content',
  read: 'reading the rows',
  commit: 'removing duplicates',
};

function showProgress(name: string, context: CommandContext): Pick<LoadDependencies, 'onProgress'> {
  if (context.isTerminal !== true) return {};
  return {
    onProgress({ phase, percent, bytesPerSecond = 0, secondsLeft = 0 }) {
      const rate =
        percent === undefined ? '' : `: ${percent} %, ${(bytesPerSecond / 1e6).toFixed(1)} MB/s, ${secondsLeft} s left`;
      context.printMessage(`${name}: ${phases[phase]}${rate}`);
    },
  };
}

const toLimited = ({ config, paths, clock, stop: signal }: DataContext) =>
  ({ lakeDir: paths.lake, clock, crashPoint: noCrashPoint, signal, limits: engineLimits(config, 256, 512) }) as const;

async function openLoadable({ config, paths, clock }: DataContext, dataset: Dataset): Promise<Table> {
  const options = { clock, retentionMs: config.retentionMs, crashPoint: noCrashPoint };
  await ensureLake(paths.lake, options);
  return openDatasetTable(paths.lake, dataset, options);
}

function assertOneInput(files: readonly string[]): void {
  if (files.filter((word) => word === '-').length > 1) failUsage('standard input can be given only once');
}

/** Loads each file atomically. Returns 1 if one was rejected. */
async function loadFiles(
  dataset: Dataset,
  { FILE: files, ...words }: LoadArguments & { readonly FILE: readonly string[] },
  context: DataContext,
): Promise<number> {
  assertOneInput(files);
  const options = await toOptions(words, dataset);
  const { config } = context;
  const apps = (await listApps(context.paths)).map(({ idApp, sdkKey }) => ({ idApp: Number(idApp), sdkKey }));
  const common = { ...toLimited(context), dataset, apps, table: await openLoadable(context, dataset) };
  const enricher = config.enriches ? await openEnrichment(config) : undefined;
  let exitCode = 0;
  for (const word of files) {
    const name = word === '-' ? word : path.basename(word);
    const input = word === '-' ? openList(word, context).pieces : undefined;
    const from = input === undefined ? word : words.byHttp ? readConfirmedInput(input, completionDescriptor) : input;
    const dependencies = { ...common, enricher, ...showProgress(name, context) };
    const outcome = await loadFile(dependencies, { name, from }, options);
    context.printResult({ dataset: dataset.table, ...outcome });
    if (!('refused' in outcome)) continue;
    context.printMessage(`tributary: ${word} was not loaded: ${outcome.refused.detail}`);
    exitCode = 1;
  }
  for (const { message, action } of enricher?.problems() ?? [])
    context.printMessage(`tributary: ${message}. ${action}`);
  enricher?.close();
  return exitCode;
}

/** Lower-cases the first letter, except of an abbreviation. */
const withoutCapital = (sentence: string): string =>
  sentence.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());

const loadDataset = (dataset: Dataset) =>
  defineDataCommand({
    name: dataset.table,
    family: { name: 'DATASET', summary: 'load rows of a dataset from files' },
    summary: `load ${withoutCapital(dataset.description).replace(/\.$/, '')}`,
    arguments: {
      FILE: many(file('CSV with a header, JSON lines, a JSON array or Parquet, also gzip; - for standard input')),
    },
    options: loadOptions,
    details: ['Columns have the names of selectors. Each file is loaded atomically, and never twice.'],
    examples: [`load ${dataset.table} rows.csv`, `load ${dataset.table} --map map.json --max-bad 10 rows.ndjson.gz`],
    exitCodes: { 1: 'a file was rejected; its output has the reason' },
    run: (given, context) => loadFiles(dataset, given, context),
  });

const titles = defineDataCommand({
  name: 'titles',
  summary: 'load display titles for ids, such as campaigns, partners and links',
  arguments: {
    FILE: many(file('CSV or JSON lines of field, id and title, such as idCampaign,66,Winter; - for standard input')),
  },
  details: ['A row replaces the title of its id; an empty title removes it. All files are loaded, or none.'],
  examples: ['load titles titles.csv'],
  exitCodes: { 1: 'a file has bad lines, which are listed; nothing was changed' },
  async run({ FILE: files }, context) {
    assertOneInput(files);
    const inputs = files.map((word) => openList(word, context));
    const loaded = await loadTitles(context.paths.titles, inputs, toListOptions(context));
    return 'titles' in loaded ? loaded : printRejectedLists(loaded, context);
  },
});

const list = defineDataCommand({
  name: 'list',
  summary: 'list the loads of every dataset',
  isList: true,
  examples: ['load list'],
  async run(_given, { config, paths, printResult }) {
    for (const dataset of loadable) {
      if (!(await hasTable(paths.lake, dataset))) continue;
      const { table } = tablePaths(paths.lake, dataset);
      for (const load of await listLoads(table, dataset.table, engineLimits(config, 256, 512))) printResult(load);
    }
  },
});

const undo = defineDataCommand({
  name: 'undo',
  summary: 'remove the rows of a load',
  arguments: { ID: text("load id, see 'tributary load list'") },
  examples: ['load undo 4f1c2a90'],
  async run({ ID: loadId }, context) {
    for (const dataset of loadable) {
      if (!(await hasTable(context.paths.lake, dataset))) continue;
      try {
        const table = await openLoadable(context, dataset);
        return { dataset: dataset.table, ...(await undoLoad({ ...toLimited(context), table }, loadId)) };
      } catch (error) {
        if (!isAppError(error, 'not_found')) throw error;
      }
    }
    throw new AppError('not_found', `load ${loadId} does not exist`, {
      hint: "Run 'tributary load list' for all loads.",
    });
  },
});

export const loadCommand: CommandGroup = {
  name: 'load',
  summary: 'load rows or titles from files; list and undo loads',
  usage: [
    'DATASET FILE... [--map FILE] [--app ID] [--max-bad N] [--restore-erased] [--format csv|ndjson|parquet] [--allow-empty] [--data DIR]',
    'titles FILE... [--data DIR]',
    'list [--data DIR]',
    'undo ID [--data DIR]',
  ],
  commands: [...loadable.map(loadDataset), titles, list, undo],
  recover(error, words, { printResult }) {
    if (!words.includes('--by-http')) throw error;
    printResult({ error: describeError(error), ...(isAppError(error) ? { code: error.code } : {}) });
    return 1;
  },
};
