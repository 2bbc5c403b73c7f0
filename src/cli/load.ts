import { availableParallelism } from 'node:os';
import path from 'node:path';
import { listApps } from '../access/listing.ts';
import { dataPaths, type Config } from '../config.ts';
import { datasets, type Dataset } from '../datasets/dataset.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { ensureLake, hasTable, openDatasetTable, tablePaths } from '../lake/lake.ts';
import type { Table } from '../lake/log/table.ts';
import type { FieldMap } from '../operate/load/file-fields.ts';
import { listLoads } from '../operate/load/list-loads.ts';
import { loadFile, type LoadDependencies, type LoadOptions } from '../operate/load/load.ts';
import type { Progress } from '../operate/load/stage-rows.ts';
import { sourceFormats } from '../operate/load/recognize.ts';
import { undoLoad } from '../operate/load/undo-load.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { getTextFile } from '../runtime/files/text-file.ts';
import { readTold, wholeDescriptor } from '../runtime/files/told-input.ts';
import { resolveConfig, type CommandContext, type GivenOptions, verb, type Group } from './command.ts';
import { file, flag, hidden, oneOf, parsed, positive, refuse, many, text } from './words.ts';
import { loadTitles } from '../operate/lists/load-titles.ts';
import { answerRefused, openList } from './segment.ts';

/** The datasets whose rows can be loaded, by name. */
export const loadable: readonly Dataset[] = [...datasets.values()].filter(({ isLoadable }) => isLoadable);

const mostBad = 100_000;

function parseMaxBad(value: string): number {
  if (/^\d{1,6}$/.test(value) && Number(value) <= mostBad) return Number(value);
  return refuse(`--max-bad takes a number from 0 to ${mostBad}, not '${value}'`);
}

/** The options of `tributary load DATASET`. */
export const loadOptions = {
  map: file('JSON: names of the file and the fields that they are, null to drop one: {"sum": "total", "note": null}'),
  app: positive('the app of rows that name none by idApp or SDKKey', 'ID'),
  maxBad: parsed('so many rows may be bad, and are kept as failed ones (0)', 'N', parseMaxBad),
  restoreErased: flag('store rows again that were erased'),
  format: oneOf(sourceFormats, 'what the files are, where their names do not say it'),
  allowEmpty: flag('a file without any text is one without rows, and no error'),
  // Of the service alone (health/load-routes.ts): the input is passed on, and an error is answered with its code.
  byHttp: hidden(flag('answers an error as JSON, and takes standard input as whole only when it is said to be')),
} as const;

/** The words of `tributary load DATASET`, as they were given. */
export type LoadWords = GivenOptions<typeof loadOptions> & { readonly files: readonly string[] };

/** The engine's part of the memory that the setting allows, and as many threads as it has memory for. */
function engineLimits({ duckdbMemoryMb }: Config): { readonly memoryMb: number; readonly threads: number } {
  return {
    memoryMb: Math.max(256, duckdbMemoryMb),
    threads: Math.max(1, Math.min(availableParallelism(), Math.floor(duckdbMemoryMb / 512))),
  };
}

async function readMap(name: string): Promise<FieldMap> {
  const hint =
    'Write an object of names in the file and names of fields, or null to drop one: {"sum": "total", "note": null}.';
  try {
    const value: unknown = JSON.parse(await getTextFile(name));
    const isMap = typeof value === 'object' && value !== null && !Array.isArray(value);
    if (!isMap || Object.values(value).some((field) => field !== null && typeof field !== 'string'))
      throw new Error('it is no object of names');
    return value as FieldMap;
  } catch (error) {
    throw new AppError('usage', `--map ${name} cannot be used: ${describeError(error)}`, { hint });
  }
}

async function toOptions({ map, app, format, maxBad, restoreErased, allowEmpty }: LoadWords): Promise<LoadOptions> {
  return {
    ...(map === undefined ? {} : { map: await readMap(map) }),
    ...(app === undefined ? {} : { idApp: app }),
    ...(maxBad === undefined ? {} : { maxBad }),
    ...(format === undefined ? {} : { format }),
    restoreErased,
    allowsEmpty: allowEmpty,
  };
}

const phases: Readonly<Record<Progress['phase'], string>> = {
  hash: 'compares the content',
  read: 'reads the rows',
  commit: 'takes out repeats',
};

/** Shows a load's progress on the terminal, a line for each second. */
function showProgress(name: string, context: CommandContext): Pick<LoadDependencies, 'onProgress'> {
  if (context.isTerminal !== true) return {};
  return {
    onProgress({ phase, percent, bytesPerSecond = 0, secondsLeft = 0 }) {
      const rate =
        percent === undefined ? '' : `: ${percent} %, ${(bytesPerSecond / 1e6).toFixed(1)} MB/s, ${secondsLeft} s left`;
      context.note(`${name} ${phases[phase]}${rate}`);
    },
  };
}

function openInput({ byHttp }: LoadWords, { input }: CommandContext): AsyncIterable<Uint8Array> {
  if (input === undefined) throw new AppError('usage', 'there is no standard input');
  return byHttp ? readTold(input(), wholeDescriptor) : input();
}

interface Opened {
  readonly config: Config;
  readonly lakeDir: string;
  readonly common: Pick<LoadDependencies, 'lakeDir' | 'clock' | 'crashPoint' | 'signal' | 'limits'>;
  readonly open: (dataset: Dataset) => Promise<Table>;
}

function openData(data: string | undefined, context: CommandContext): Opened {
  const config = resolveConfig(context.environment, { TRIBUTARY_DATA_DIR: data });
  const { lake: lakeDir } = dataPaths(config.dataDir);
  const clock = createClock(config.clockOffsetSeconds);
  const options = { clock, retentionMs: config.retentionMs, crashPoint: noCrashPoint };
  return {
    config,
    lakeDir,
    common: { lakeDir, clock, crashPoint: noCrashPoint, signal: context.stop, limits: engineLimits(config) },
    async open(dataset) {
      await ensureLake(lakeDir, options);
      return openDatasetTable(lakeDir, dataset, options);
    },
  };
}

/** `tributary load DATASET FILE...`: each file whole or not at all. Returns 1 when one was refused. */
export async function runLoadDataset(dataset: Dataset, words: LoadWords, context: CommandContext): Promise<number> {
  if (words.files.filter((word) => word === '-').length > 1) refuse('standard input can be read once');
  const options = await toOptions(words);
  const { config, common, open } = openData(words.data, context);
  const apps = listApps(dataPaths(config.dataDir)).map(({ idApp, sdkKey }) => ({ idApp: Number(idApp), sdkKey }));
  const table = await open(dataset);
  const enricher = config.enriches ? await openEnrichment(config) : undefined;
  let exitCode = 0;
  for (const word of words.files) {
    const from = word === '-' ? openInput(words, context) : word;
    const name = word === '-' ? word : path.basename(word);
    const outcome = await loadFile(
      { ...common, dataset, apps, table, enricher, ...showProgress(name, context) },
      { name, from },
      options,
    );
    context.answer({ dataset: dataset.table, ...outcome });
    if ('refused' in outcome) {
      context.note(`tributary: ${word} was not loaded: ${outcome.refused.detail}`);
      exitCode = 1;
    }
  }
  for (const { what, todo } of enricher?.problems() ?? []) context.note(`tributary: ${what}. ${todo}`);
  enricher?.close();
  return exitCode;
}

/** `tributary load list`: every load of every dataset. */
export async function runLoadList(data: string | undefined, context: CommandContext): Promise<number> {
  const { lakeDir, common } = openData(data, context);
  for (const dataset of loadable) {
    if (!(await hasTable(lakeDir, dataset))) continue;
    const { table } = tablePaths(lakeDir, dataset);
    for (const load of await listLoads(table, dataset.table, common.limits)) context.answer(load);
  }
  return 0;
}

/** `tributary load undo ID`: takes the rows of a load out. */
export async function runLoadUndo(loadId: string, data: string | undefined, context: CommandContext): Promise<number> {
  const { lakeDir, common, open } = openData(data, context);
  for (const dataset of loadable) {
    if (!(await hasTable(lakeDir, dataset))) continue;
    try {
      context.answer({
        dataset: dataset.table,
        ...(await undoLoad({ ...common, table: await open(dataset) }, loadId)),
      });
      return 0;
    } catch (error) {
      if (!isAppError(error, 'not_found')) throw error;
    }
  }
  throw new AppError('not_found', `there is no load ${loadId}`, { hint: "'tributary load list' lists them." });
}

/** `tributary load titles FILE...`: what ids of campaigns, partners, links and the like are called in exports. */
export async function runLoadTitles(
  files: readonly string[],
  data: string | undefined,
  context: CommandContext,
): Promise<number> {
  if (files.filter((file) => file === '-').length > 1) refuse('standard input can be read once');
  const config = resolveConfig(context.environment, { TRIBUTARY_DATA_DIR: data });
  const inputs = files.map((file) => openList(file, context));
  const loaded = await loadTitles(dataPaths(config.dataDir).titles, inputs, {
    clock: createClock(config.clockOffsetSeconds),
    memoryMb: config.duckdbMemoryMb,
    signal: context.stop,
  });
  if (!('titles' in loaded)) return answerRefused(loaded, context);
  context.answer(loaded);
  return 0;
}

/** An abbreviation keeps its capitals. */
const withoutCapital = (sentence: string): string =>
  sentence.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());

const loadDataset = (dataset: Dataset) =>
  verb({
    name: dataset.table,
    summary: `load ${withoutCapital(dataset.description).replace(/\.$/, '')}`,
    words: {
      FILE: many(file('CSV with a header, JSON lines, a JSON array or Parquet, also gzip; - for standard input')),
    },
    options: loadOptions,
    details: ['Fields have the names of selectors; each file is loaded whole or not at all, and never twice.'],
    examples: [`load ${dataset.table} rows.csv`, `load ${dataset.table} --map map.json --max-bad 10 rows.ndjson.gz`],
    exitCodes: { 1: 'a file was refused: its line says why' },
    run: ({ FILE: files, ...options }, context) => runLoadDataset(dataset, { files, ...options }, context),
  });

const titles = verb({
  name: 'titles',
  summary: 'load what ids of campaigns, partners, links and the like are called in exports',
  words: { FILE: many(file('rows of field, id and title, such as idCampaign,66,Winter: CSV or JSON lines; - too')) },
  details: [
    'A row replaces the title that its id had, and an empty title takes it away; all files are taken, or none.',
  ],
  examples: ['load titles titles.csv'],
  exitCodes: { 1: 'a file has bad lines, which are answered; nothing was changed' },
  run: ({ FILE: files, data }, context) => runLoadTitles(files, data, context),
});

const list = verb({
  name: 'list',
  summary: 'list the loads of every dataset',
  isList: true,
  examples: ['load list'],
  run: ({ data }, context) => runLoadList(data, context),
});

const undo = verb({
  name: 'undo',
  summary: 'take the rows of a load out again',
  words: { ID: text("the load, as 'tributary load list' has it") },
  examples: ['load undo 4f1c2a90'],
  run: ({ ID: load, data }, context) => runLoadUndo(load, data, context),
});

/** `tributary load NAME ...`: takes an operator's own data in. */
export const loadCommand: Group = {
  name: 'load',
  summary: 'load rows of a dataset, or titles, from files; list loads, undo one',
  usage: [
    'DATASET FILE... [--map FILE] [--app ID] [--max-bad N] [--restore-erased] [--format csv|ndjson|parquet] [--allow-empty] [--data DIR]',
    'titles FILE... [--data DIR]',
    'list [--data DIR]',
    'undo ID [--data DIR]',
  ],
  verbs: [...loadable.map(loadDataset), titles, list, undo],
  recover(error, words, { answer }) {
    if (!words.includes('--by-http')) throw error;
    answer({ error: describeError(error), ...(isAppError(error) ? { code: error.code } : {}) });
    return 1;
  },
};
