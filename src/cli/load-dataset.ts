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
import type { Progress } from '../operate/load/progress.ts';
import { sourceFormats, type SourceFormat } from '../operate/load/source.ts';
import { undoLoad } from '../operate/load/undo-load.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { getTextFile } from '../runtime/files/text-file.ts';
import { readTold, wholeDescriptor } from '../runtime/files/told-input.ts';
import { parseId, resolveConfig, type CommandContext } from './command.ts';

/** The datasets whose rows can be loaded, by name. */
export const loadable: readonly Dataset[] = [...datasets.values()].filter(({ isLoadable }) => isLoadable);

/** The words of `tributary load` after its name, as they were given. */
export interface LoadWords {
  readonly files: readonly string[];
  readonly data?: string | undefined;
  readonly map?: string | undefined;
  readonly app?: string | undefined;
  readonly 'max-bad'?: string | undefined;
  readonly format?: string | undefined;
  /** The service passes standard input on, and says by a further descriptor that it was whole. */
  readonly 'by-http'?: boolean | undefined;
}

const mostBad = 100_000;

/** The engine's part of the memory that the setting allows, and as many threads as it has memory for. */
function engineLimits({ duckdbMemoryMb }: Config): { readonly memoryMb: number; readonly threads: number } {
  return {
    memoryMb: Math.max(256, duckdbMemoryMb),
    threads: Math.max(1, Math.min(availableParallelism(), Math.floor(duckdbMemoryMb / 512))),
  };
}

async function readMap(file: string): Promise<FieldMap> {
  const hint =
    'Write an object of names in the file and names of fields, or null to drop one: {"sum": "total", "note": null}.';
  try {
    const value: unknown = JSON.parse(await getTextFile(file));
    const isMap = typeof value === 'object' && value !== null && !Array.isArray(value);
    if (!isMap || Object.values(value).some((name) => name !== null && typeof name !== 'string'))
      throw new Error('it is no object of names');
    return value as FieldMap;
  } catch (error) {
    throw new AppError('usage', `--map ${file} cannot be used: ${describeError(error)}`, { hint });
  }
}

function isFormat(text: string): text is SourceFormat {
  return sourceFormats.some((known) => known === text);
}

async function parseOptions(words: LoadWords): Promise<LoadOptions> {
  const { map, app, format, 'max-bad': maxBad } = words;
  if (format !== undefined && !isFormat(format))
    throw new AppError('usage', `--format takes ${sourceFormats.join(', ')}, not '${format}'`);
  if (maxBad !== undefined && !(/^\d{1,6}$/.test(maxBad) && Number(maxBad) <= mostBad))
    throw new AppError('usage', `--max-bad takes a number from 0 to ${mostBad}, not '${maxBad}'`);
  return {
    ...(map === undefined ? {} : { map: await readMap(map) }),
    ...(app === undefined ? {} : { idApp: parseId(app, '--app') }),
    ...(maxBad === undefined ? {} : { maxBad: Number(maxBad) }),
    ...(format === undefined ? {} : { format }),
  };
}

const phases: Readonly<Record<Progress['phase'], string>> = {
  hash: 'compares the content',
  read: 'reads the rows',
  commit: 'takes out repeats',
};

/** Shows a load's progress on the terminal, a line for each second. */
function showProgress(file: string, context: CommandContext): Pick<LoadDependencies, 'onProgress'> {
  if (context.isTerminal !== true) return {};
  return {
    onProgress({ phase, percent, bytesPerSecond = 0, secondsLeft = 0 }) {
      const rate =
        percent === undefined ? '' : `: ${percent} %, ${(bytesPerSecond / 1e6).toFixed(1)} MB/s, ${secondsLeft} s left`;
      context.note(`${file} ${phases[phase]}${rate}`);
    },
  };
}

function openInput({ 'by-http': isPassedOn }: LoadWords, { input }: CommandContext): AsyncIterable<Uint8Array> {
  if (input === undefined) throw new AppError('usage', 'there is no standard input');
  return isPassedOn === true ? readTold(input(), wholeDescriptor) : input();
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
  const options = await parseOptions(words);
  const { config, common, open } = openData(words.data, context);
  const apps = listApps(dataPaths(config.dataDir)).map(({ idApp, sdkKey }) => ({ idApp: Number(idApp), sdkKey }));
  const table = await open(dataset);
  const enricher = config.enriches ? await openEnrichment(config) : undefined;
  let exitCode = 0;
  for (const file of words.files) {
    const from = file === '-' ? openInput(words, context) : file;
    const name = file === '-' ? file : path.basename(file);
    const outcome = await loadFile(
      { ...common, dataset, apps, table, enricher, ...showProgress(name, context) },
      { name, from },
      options,
    );
    context.answer({ dataset: dataset.table, ...outcome });
    if ('refused' in outcome) {
      context.note(`tributary: ${file} was not loaded: ${outcome.refused.detail}`);
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
