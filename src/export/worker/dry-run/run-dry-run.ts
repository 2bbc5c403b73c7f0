/**
 * Estimates, previews and daily numbers of rows of exports.
 *
 * In: a plan (jobs/worker-messages.ts), one snapshot of the lake. Out: one outcome. No file has a name: no work folder,
 * no spilling; lists are read in place, after a comparison of their hash.
 * Invariant: a result is that of the version it names.
 * Crash: nothing is left.
 */
import path from 'node:path';
import { getSelector } from '../../../datasets/dictionaries.ts';
import { inParallel } from '../../../runtime/async/in-parallel.ts';
import { describeError, isAppError, isDamage } from '../../../runtime/errors.ts';
import { findStoredSize, foldersOfFiles } from '../../../runtime/store/open-store.ts';
import { openUnnamedFile, unnamedFolder } from '../../../runtime/files/work-files.ts';
import type {
  DailyRows,
  EstimateRange,
  Estimate,
  DryRunOutcome,
  DryRunPlan,
  OverLimit,
  Preview,
  ReadPlan,
} from '../../jobs/worker-messages.ts';
import { toReportVersion, resolveReadVersion, useLists, type ReadVersion } from '../read-version.ts';
import { planSlices, type Slice } from '../copy-slices.ts';
import { filesSql, type ExportQuery, type ExportStatement } from '../export-query.ts';
import { chooseFormat } from '../formats/format.ts';
import { openReadEngine, type QueryEngine } from '../query-engine.ts';
import { buildEmptyQuery, planQuery } from '../query.ts';
import {
  withoutRows,
  createReadFiles,
  createVerify,
  prepare,
  usePaths,
  type ReadFiles,
  type Verify,
} from '../read-files.ts';
import { LimitError, runWatched } from '../watch-statement.ts';

/** Timeouts of counting a result, and of counting its apps or sampling bytes, ms. */
const defaultTimes = { countMs: 8000, sampleMs: 4000 };
/**
 * Rows of a file that are written to measure them, and files, at most. Text bytes of real events are off by 0.3 %
 * (median), 6.1 % (p90) and 7 % (max).
 */
const [sampleRows, maxSampledRows] = [2048, 16];
/** Rows of a compressed or derived sample, from the first files. */
const wholeSampleRows = 65_536;
/** Half the width of the bounds of sampled bytes, as a share: of text, and of compressed files. */
const [textMargin, compressedMargin] = [0.08, 0.5];
/** Start of an export, s, and its throughput per second, as measured (docs/api.md). */
const [startSeconds, rowsRead, bytesWritten] = [0.7, 4_000_000, 100_000_000];
const action = 'Select fewer days, apps or fields, split the export, or ask the operator to raise the limit.';

const ofApps = `SELECT events.file_index AS file, count(*) AS rows FROM ${filesSql} AS events
  WHERE events.id_app IN (SELECT id_app FROM apps) GROUP BY ALL`;

export interface DryRun {
  readonly plan: ReadPlan;
  readonly readVersion: ReadVersion;
  readonly query: ExportQuery;
  readonly engine: QueryEngine;
  readonly read: ReadFiles;
  readonly verify: Verify;
}

interface Counted {
  readonly files: ReadonlyMap<number, number>;
  readonly rows: number;
  /** Whether they are those of the result; otherwise those of the apps, an upper bound. */
  readonly isExact: boolean;
}

/** Bytes of an empty result, and of a mean row; undefined if no row was found in time. */
interface Sampled {
  readonly empty: number;
  readonly ofRow: number | undefined;
  /** 0: every row was measured. */
  readonly margin: number;
}

/** Runs work on an engine; undefined if it did not finish before a time of `performance.now()`. */
async function inTime<T>({ plan, engine }: DryRun, endMs: number, work: () => Promise<T>): Promise<T | undefined> {
  const late = new Error('no time is left');
  const findFault = (): unknown => (performance.now() >= endMs ? late : undefined);
  if (findFault() === late) return undefined;
  const working = runWatched(engine, withoutRows({ plan }), () => undefined, work(), findFault);
  return await working.catch((error: unknown) => (error === late ? undefined : Promise.reject(error)));
}

/** Counts the rows of a result; undefined if not even those of the apps were counted in time. */
async function countRows(dryRun: DryRun, { countMs, sampleMs }: typeof defaultTimes): Promise<Counted | undefined> {
  const { plan, readVersion, query, engine, read, verify } = dryRun;
  async function count(exportStatement: ExportStatement, isExact: boolean): Promise<Counted> {
    const found = await usePaths(readVersion, read, (paths) => engine.rows(exportStatement, paths));
    const files = new Map(found.map(({ file, rows }) => [Number(file), Number(rows)]));
    return { files, rows: [...files.values()].reduce((sum, rows) => sum + rows, 0), isExact };
  }
  const exact = await inTime(dryRun, performance.now() + countMs, () =>
    prepare({ engines: [engine], read, verify }, query, { plan, ...readVersion }).then(() => count(query.count, true)),
  );
  return exact ?? inTime(dryRun, performance.now() + sampleMs, () => count({ sql: ofApps, values: {} }, false));
}

/**
 * Lists the samples, with the number of rows that each represents: one per file of some files. Compressed rows, which
 * are smaller together, and derived rows, which are found by the index of their file, have one sample of all files.
 */
function listSamples({ query, read: { files: all } }: DryRun, isText: boolean, { files, rows, isExact }: Counted) {
  const isDerived = query.preparation !== undefined;
  if (isDerived && !isExact) return [];
  if (isDerived || !isText) return [{ of: all, most: wholeSampleRows, rows }];
  const some = [...files].toSorted(([a], [b]) => a - b);
  const step = Math.max(1, some.length / maxSampledRows);
  return some
    .filter((_file, n) => Math.floor(n / step) > Math.floor((n - 1) / step))
    .map(([file, own]) => ({ of: all.slice(file - 1, file), most: sampleRows, rows: own }));
}

/** Writes the first rows of some files as the export does, and measures them. */
async function sampleBytes(dryRun: DryRun, counted: Counted | undefined, ms: number): Promise<Sampled> {
  const { plan, readVersion, query, engine } = dryRun;
  const { copyOptions, partOptions } = chooseFormat(plan.request);
  const endMs = performance.now() + ms;
  const file = await openUnnamedFile();
  async function measure(select: ExportStatement, paths: readonly string[]) {
    const rows = await engine.copyTo(select, paths, file.path, `${copyOptions}, USE_TMP_FILE false`);
    return { rows, bytes: await file.size() };
  }
  try {
    const { bytes: empty } = await measure(buildEmptyQuery(plan.request).select, []);
    const { sql, values } = query.select;
    let [rows, bytes, measured] = [0, 0, 0];
    for (const sample of counted === undefined ? [] : listSamples(dryRun, partOptions !== undefined, counted)) {
      const first = { sql: `SELECT * FROM (${sql}) LIMIT ${sample.most}`, values };
      const found = await inTime(dryRun, endMs, () =>
        usePaths(readVersion, { files: sample.of }, (paths) => measure(first, paths)),
      );
      if (found === undefined || found.rows === 0) continue;
      measured += found.rows;
      rows += sample.rows;
      bytes += ((found.bytes - empty) * sample.rows) / found.rows;
    }
    const isAll =
      counted?.isExact === true && measured === counted.rows && (partOptions !== undefined || measured === 0);
    const margin = isAll ? 0 : partOptions === undefined ? compressedMargin : textMargin;
    return { empty, ofRow: rows === 0 ? undefined : bytes / rows, margin };
  } finally {
    await file.close();
  }
}

function boundRows(counted: Counted | undefined): EstimateRange {
  const rows = counted?.rows ?? null;
  return counted?.isExact === true
    ? { atLeast: counted.rows, expected: rows, atMost: rows }
    : { atLeast: 0, expected: null, atMost: rows };
}

function boundBytes({ expected, atMost }: EstimateRange, { empty, ofRow, margin }: Sampled): EstimateRange {
  if (atMost === null || (ofRow === undefined && atMost > 0)) return { atLeast: empty, expected: null, atMost: null };
  const bytesOf = (rows: number): number => Math.round(empty + rows * (ofRow ?? 0));
  return {
    atLeast: bytesOf((expected ?? 0) * (1 - margin)),
    expected: expected === null ? null : bytesOf(expected),
    atMost: bytesOf(atMost * (1 + margin)),
  };
}

/** Bounds the number of files. A part and the first row of the next exceed the size of one. */
function boundParts({ request, limits }: ReadPlan, { atLeast, atMost }: EstimateRange): Estimate['parts'] {
  const { partOptions } = chooseFormat(request);
  if (partOptions === undefined) return { atLeast: 1, atMost: 1 };
  const { partMaxBytes } = limits;
  const plain = Math.max(0, partOptions.plainMaxBytes(limits));
  const maxParts = (bytes: number): number =>
    bytes <= Math.max(plain, partMaxBytes) ? 1 : Math.ceil((2 * bytes) / partMaxBytes) + 1;
  return {
    atLeast: atLeast <= plain ? 1 : Math.max(1, Math.ceil(atLeast / partMaxBytes)),
    atMost: atMost === null ? null : maxParts(atMost),
  };
}

function over(limit: OverLimit['limit'], allowed: number, { atLeast, atMost }: EstimateRange): OverLimit[] {
  return (atMost ?? Infinity) > allowed ? [{ limit, allowed, isCertain: atLeast > allowed, action }] : [];
}

/**
 * Counts the rows of a result, and multiplies them by the mean bytes of the first rows of its files. Rows of other
 * accounts are neither counted nor written. Errors: `sql` if a file cannot be read; those of the system.
 */
export async function estimate(dryRun: DryRun, times = defaultTimes): Promise<Omit<Estimate, 'basis'>> {
  const { plan, read, verify } = dryRun;
  const { limits } = plan;
  await verify(read.files);
  const counted = await countRows(dryRun, times);
  const rows = boundRows(counted);
  const bytes = boundBytes(rows, await sampleBytes(dryRun, counted, times.sampleMs));
  const all = read.files.reduce((sum, { numRecords = 0 }) => sum + numRecords, 0);
  const seconds = startSeconds + all / rowsRead + (bytes.expected ?? 0) / bytesWritten;
  return {
    rows,
    bytes,
    parts: boundParts(plan, bytes),
    seconds: Math.ceil(seconds * 10) / 10,
    overLimits: [...over('rows', limits.maxRows, rows), ...over('bytes', limits.maxBytes, bytes)],
  };
}

/** Attempts: files that are replaced meanwhile may be removed soon. */
const attempts = 3;
const tooLarge = 'The query exceeds its memory limit. Select fewer days or apps, or leave out order';
const previewRows = 20;

/** Splits the files so that the first piece has the first rows; not for derived rows and `order=time`. */
function piecesOf({ plan: { request }, query: { preparation }, read: { files } }: DryRun): Slice[] {
  if (preparation !== undefined || request.order === 'time' || files.length === 0) return [{ files }];
  return planSlices(files).filter(({ rows }) => rows === undefined || rows.from === 0);
}

/** Reads the first rows of a result, cells as in CSV, from as few files as possible. */
async function preview(dryRun: DryRun): Promise<Omit<Preview, 'basis'>> {
  const { plan, readVersion, query, engine, read, verify } = dryRun;
  await prepare({ engines: [engine], read, verify }, query, { plan, ...readVersion });
  const { sql, values } = query.select;
  // One more row shows whether there are more.
  const wanted = previewRows + 1;
  const rows: (string | null)[][] = [];
  for (const { files } of piecesOf(dryRun)) {
    const left = wanted - rows.length;
    if (left === 0) break;
    await verify(files);
    const first = { sql: `SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (${sql} LIMIT ${left})`, values };
    const reading = usePaths(readVersion, { files }, (paths) => engine.rows(first, paths));
    const found = await runWatched(engine, withoutRows({ plan }), () => undefined, reading);
    rows.push(...found.map((row) => Object.values(row).map((cell) => (typeof cell === 'string' ? cell : null))));
  }
  const columns = plan.request.selectors.map((name) => getSelector(name).name);
  return { columns, rows: rows.slice(0, previewRows), isTruncated: rows.length > previewRows };
}

/** Counts the rows of a result by date. */
async function countDays({ plan, readVersion, query, engine, read, verify }: DryRun): Promise<DailyRows['days']> {
  await verify(read.files);
  await prepare({ engines: [engine], read, verify }, query, { plan, ...readVersion });
  const reading = usePaths(readVersion, read, (paths) => engine.rows(query.days, paths));
  const found = await runWatched(engine, withoutRows({ plan }), () => undefined, reading);
  return found.map(({ date, rows }) => ({ date: String(date), rows: Number(rows) }));
}

/** Sizes that are read at a time: each may be a request to a store. */
const sizesAtOnce = 16;

/** Compares the sizes of files, and the hash only if a size differs. */
function createSizeCheck(verify: Verify): Verify {
  return (files) =>
    inParallel(files, sizesAtOnce, async (file) => {
      if ((await findStoredSize(file)) !== file.sizeBytes) await verify([file]);
    });
}

async function runDryRun(plan: DryRunPlan, readVersion: ReadVersion): Promise<DryRunOutcome> {
  const { request, segment, titles, tableDir } = plan;
  const lists = [segment, titles].flatMap((list) => list ?? []);
  const isEstimate = plan.look !== 'preview';
  // A sample and a count are the same in any order.
  const { order: _order, ...unordered } = request;
  const query = isEstimate
    ? planQuery({ ...plan, request: unordered }, readVersion, { lean: true, cells: chooseFormat(request).cells })
    : planQuery(plan, readVersion, { lean: true, cells: 'text' });
  const folders = [
    ...foldersOfFiles(tableDir),
    unnamedFolder,
    ...lists.map(({ absolutePath }) => path.dirname(absolutePath)),
  ];
  const engine = await openReadEngine(plan, folders, query.inline);
  try {
    const read = createReadFiles({ plan, ...readVersion }, query);
    const verify = createVerify({ plan, ...readVersion });
    const about = { plan, readVersion, query, engine, read, verify: isEstimate ? createSizeCheck(verify) : verify };
    const describe = () => toReportVersion(plan, readVersion);
    if (!isEstimate) return { kind: 'preview', preview: { ...(await preview(about)), basis: await describe() } };
    if (plan.look === 'daily')
      return { kind: 'daily', daily: { days: await countDays(about), basis: await describe() } };
    // If a file cannot be read, its hash shows why.
    const found = await estimate(about).catch((error: unknown) => verify(read.files).then(() => Promise.reject(error)));
    return { kind: 'estimate', estimate: { ...found, basis: await describe() } };
  } finally {
    engine.close();
  }
}

/** Runs an estimate or a preview. Retries temporary errors; never throws. */
export async function runDryRunJob(plan: DryRunPlan): Promise<DryRunOutcome> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const readVersion = await resolveReadVersion(plan);
      return await useLists(plan, (local) => runDryRun(local, readVersion));
    } catch (error) {
      if (error instanceof LimitError) return { kind: 'failed', reason: 'user', error: error.message };
      if (isAppError(error, 'memory')) return { kind: 'failed', reason: 'user', error: tooLarge };
      const mayPass = isAppError(error) && error.retryable && attempt < attempts;
      if (!mayPass)
        return { kind: 'failed', reason: isDamage(error) ? 'damage' : 'error', error: describeError(error) };
    }
  }
}
