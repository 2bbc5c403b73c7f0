import type { Bounds, Estimate, OverLimit } from '../../jobs/look-messages.ts';
import type { ReadPlan } from '../../jobs/worker-messages.ts';
import { openUnnamedFile } from '../../../runtime/files/work-files.ts';
import type { Basis } from '../basis.ts';
import { filesSql, type ExportQuery, type Statement } from '../export-query.ts';
import { chooseFormat } from '../formats/format.ts';
import { buildEmptyQuery } from '../query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { before, pathsOf, prepare, type ReadFiles, type Verify } from '../read-files.ts';
import { watch } from '../watch-statement.ts';

/** Time limits of counting the rows of a result, and of counting those of its apps or of sampling bytes, milliseconds. */
const defaultTimes = { countMs: 8000, sampleMs: 4000 };
/** Rows of one file that are written to measure them. */
const sampleRows = 2048;
/** Files that are sampled, at most. */
const mostSampled = 32;
/** Half the width of the bounds of sampled bytes, as a share of them. */
const sampleMargin = 0.25;
/** The start of an export, seconds, and its work in a second, as measured (docs/api.md). */
const [startSeconds, rowsRead, bytesWritten] = [0.7, 4_000_000, 100_000_000];
const todo = 'Ask for fewer days, apps or fields, one after the other, or have the operator raise the limit.';

/** The rows of an account's apps. */
const ofApps = `SELECT events.file_index AS file, count(*) AS rows FROM ${filesSql} AS events
  WHERE events.id_app IN (SELECT id_app FROM apps) GROUP BY ALL`;

/** A request, the version that it reads, and what answers it. */
export interface Look {
  readonly plan: ReadPlan;
  readonly basis: Basis;
  readonly query: ExportQuery;
  readonly engine: QueryEngine;
  readonly read: ReadFiles;
  readonly verify: Verify;
}

/** Numbers of rows by the index of their file. */
interface Counted {
  readonly files: ReadonlyMap<number, number>;
  readonly rows: number;
  /** The rows of the result; otherwise those of the apps, which are at least as many. */
  readonly isExact: boolean;
}

/** Bytes of a result without rows, and of a mean row; `ofRow` is undefined if no row was found in time. */
interface Sampled {
  readonly empty: number;
  readonly ofRow: number | undefined;
  /** Every row was measured. */
  readonly isWhole: boolean;
}

function createDeadline(ms: number): () => boolean {
  const end = performance.now() + ms;
  return () => performance.now() >= end;
}

/** Does work of an engine; undefined if it was not done in time. */
async function inTime<T>(
  { plan, engine }: Look,
  isOver: () => boolean,
  work: () => Promise<T>,
): Promise<T | undefined> {
  if (isOver()) return undefined;
  const late = new Error('no time is left');
  const working = watch(
    engine,
    before({ plan }),
    () => undefined,
    work(),
    () => (isOver() ? late : undefined),
  );
  return await working.catch((error: unknown) => (error === late ? undefined : Promise.reject(error)));
}

/** Counts the rows of a result; undefined if not even those of the apps were counted in time. */
async function countRows(look: Look, { countMs, sampleMs }: typeof defaultTimes): Promise<Counted | undefined> {
  const { plan, basis, query, engine, read, verify } = look;
  async function count(statement: Statement, isExact: boolean): Promise<Counted> {
    const found = await engine.rows(statement, pathsOf(basis, read));
    const files = new Map(found.map(({ file, rows }) => [Number(file), Number(rows)]));
    return { files, rows: [...files.values()].reduce((sum, rows) => sum + rows, 0), isExact };
  }
  const exact = await inTime(look, createDeadline(countMs), () =>
    prepare({ engines: [engine], read, verify }, query, { plan, ...basis }).then(() => count(query.count, true)),
  );
  return exact ?? inTime(look, createDeadline(sampleMs), () => count({ sql: ofApps, values: {} }, false));
}

/**
 * The lists of files that are sampled, each with the number of rows that its sample stands for: some of all files.
 * Derived rows are found by the index of their file, so that they are sampled from the whole list.
 */
function listSamples({ basis, query, read }: Look, { files, rows, isExact }: Counted) {
  const [empty = '', ...paths] = pathsOf(basis, read);
  if (query.preparation !== undefined) return isExact ? [{ paths: [empty, ...paths], rows }] : [];
  const some = [...files].toSorted(([a], [b]) => a - b);
  const step = Math.max(1, some.length / mostSampled);
  return some
    .filter((_file, n) => Math.floor(n / step) > Math.floor((n - 1) / step))
    .map(([file, own]) => ({ paths: [empty, paths[file - 1] ?? empty], rows: own }));
}

/** Writes the first rows of some files as the export writes them, and measures them. */
async function sampleBytes(look: Look, counted: Counted | undefined, ms: number): Promise<Sampled> {
  const { plan, query, engine } = look;
  const { copyOptions, parts } = chooseFormat(plan.request);
  const isOver = createDeadline(ms);
  const file = await openUnnamedFile();
  async function measure(select: Statement, paths: readonly string[]) {
    const rows = await engine.copyTo(select, paths, file.path, `${copyOptions}, USE_TMP_FILE false`);
    return { rows, bytes: await file.size() };
  }
  try {
    const { bytes: empty } = await measure(buildEmptyQuery(plan.request).select, []);
    const first = { ...query.select, sql: `SELECT * FROM (${query.select.sql}) LIMIT ${sampleRows}` };
    let [rows, bytes, measured] = [0, 0, 0];
    for (const sample of counted === undefined ? [] : listSamples(look, counted)) {
      const found = await inTime(look, isOver, () => measure(first, sample.paths));
      if (found === undefined || found.rows === 0) continue;
      measured += found.rows;
      rows += sample.rows;
      bytes += ((found.bytes - empty) * sample.rows) / found.rows;
    }
    // Compressed rows have other bytes together than in samples.
    const isWhole = counted?.isExact === true && measured === counted.rows && (measured === 0 || parts !== undefined);
    return { empty, ofRow: rows === 0 ? undefined : bytes / rows, isWhole };
  } finally {
    await file.close();
  }
}

function boundRows(counted: Counted | undefined): Bounds {
  const rows = counted?.rows ?? null;
  return counted?.isExact === true
    ? { atLeast: counted.rows, expected: rows, atMost: rows }
    : { atLeast: 0, expected: null, atMost: rows };
}

function boundBytes({ expected, atMost }: Bounds, { empty, ofRow, isWhole }: Sampled): Bounds {
  if (atMost === null || (ofRow === undefined && atMost > 0)) return { atLeast: empty, expected: null, atMost: null };
  const margin = isWhole ? 0 : sampleMargin;
  const bytesOf = (rows: number): number => Math.round(empty + rows * (ofRow ?? 0));
  return {
    atLeast: bytesOf((expected ?? 0) * (1 - margin)),
    expected: expected === null ? null : bytesOf(expected),
    atMost: bytesOf(atMost * (1 + margin)),
  };
}

/** How many files a result is. A part and the first row of the next do not fit into one. */
function boundParts({ request, limits }: ReadPlan, { atLeast, atMost }: Bounds): Estimate['parts'] {
  const { parts } = chooseFormat(request);
  if (parts === undefined) return { atLeast: 1, atMost: 1 };
  const { partMaxBytes } = limits;
  const plain = Math.max(0, parts.plainMaxBytes(limits));
  const most = (bytes: number): number =>
    bytes <= Math.max(plain, partMaxBytes) ? 1 : Math.ceil((2 * bytes) / partMaxBytes) + 1;
  return {
    atLeast: atLeast <= plain ? 1 : Math.max(1, Math.ceil(atLeast / partMaxBytes)),
    atMost: atMost === null ? null : most(atMost),
  };
}

function over(limit: OverLimit['limit'], allowed: number, { atLeast, atMost }: Bounds): OverLimit[] {
  return (atMost ?? Infinity) > allowed ? [{ limit, allowed, isCertain: atLeast > allowed, todo }] : [];
}

/**
 * Counts the rows of a result, and multiplies them by the mean bytes of the first rows of its files. Rows of other
 * accounts are neither counted nor written. Errors: `sql` if a file cannot be read; those of the system.
 */
export async function estimate(look: Look, times = defaultTimes): Promise<Omit<Estimate, 'basis'>> {
  const { plan, read, verify } = look;
  const { limits } = plan;
  await verify(read.files);
  const counted = await countRows(look, times);
  const rows = boundRows(counted);
  const bytes = boundBytes(rows, await sampleBytes(look, counted, times.sampleMs));
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
