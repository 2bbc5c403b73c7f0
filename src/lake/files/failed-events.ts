import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { readdir, readFile, rename, open } from 'node:fs/promises';
import path from 'node:path';
import { removeFile, syncFolder, writeNewFile, ensureFolder, moveFile } from '../../runtime/files/durable-file.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { findLakeState, findLoadState } from '../log/lake-state.ts';
import { readCommit } from '../log/log-files.ts';

/** Why an event could not be written to the table. */
export const failureReasons = ['bad_json', 'bad_value', 'key_reused', 'too_large'] as const;
export type FailureReason = (typeof failureReasons)[number];

/** An event that could not be written, as it is kept: one line of JSON in a file of `failed/`. */
export interface FailedEvent {
  readonly reason: FailureReason;
  /** ISO 8601. */
  readonly failedAt: string;
  /** The event as it was in the stream. */
  readonly line: string;
  /** The bytes of the line, when they are no UTF-8 text. */
  readonly lineBase64?: string;
  /** A row of a file that was loaded: `line` is then the row, as JSON. */
  readonly load?: {
    readonly id: string;
    readonly dataset: string;
    /** Line of the file, or number of the row. */
    readonly line: number;
    readonly reason: string;
    readonly field?: string;
    /** What names of the row's fields are called by the schema, where the load was given a map; null: dropped. */
    readonly map?: Readonly<Record<string, string | null>>;
    /** The app of rows that name none, where the load was given one. */
    readonly idApp?: number;
  };
}

/**
 * A file of failed events belongs to the commit that counts them. Before that commit its name starts with `pending-`
 * and names the version the commit builds on; afterwards the prefix is dropped. A crash in between is settled by
 * looking the commit up in the log, so failed events are kept exactly once, as rows are.
 */
const pendingName = /^pending-(\d+)-([0-9a-f-]{36})\.ndjson$/;
const settledName = /^[0-9a-f-]{36}\.ndjson$/;

const settledPath = (folder: string, commitId: string): string => path.join(folder, `${commitId}.ndjson`);

const checkOf = (rest: string): string => createHash('sha256').update(rest).digest('hex').slice(0, 16);
const checkedHead = /^\{"check":"([0-9a-f]{16})",/;
/** What a line of a version before 0.4 begins with, which has no checksum. */
const uncheckedHead = /^\{"(?:reason|line|lineBase64|failedAt|load)":/;

/** Renders failed events as lines of JSON, each of which begins with a checksum of the rest. */
export function renderFailed(events: readonly FailedEvent[]): string {
  return events
    .map((event) => {
      const rest = JSON.stringify(event).slice(1);
      return `{"check":"${checkOf(rest)}",${rest}\n`;
    })
    .join('');
}

/** Throws `file_damaged` unless each line of a file of failed events is what was written. */
function assertLines(text: string, file: string): void {
  for (const [index, line] of text.split('\n').entries()) {
    const [head, check] = checkedHead.exec(line) ?? [];
    if (head === undefined ? line === '' || uncheckedHead.test(line) : checkOf(line.slice(head.length)) === check)
      continue;
    throw new AppError('file_damaged', `${file} is damaged: line ${index + 1} is not what was written`, {
      hint: "Restore the file from a backup; 'tributary lake check' lists every damaged one.",
    });
  }
}

/** Writes the failed events of a commit to come, durably. Returns the path to pass to `settleFailed`. */
export async function writePendingFailed(
  folder: string,
  baseVersion: number,
  commitId: string,
  events: readonly FailedEvent[],
): Promise<string> {
  const file = path.join(folder, `pending-${baseVersion}-${commitId}.ndjson`);
  await writeNewFile(file, renderFailed(events));
  await syncFolder(folder);
  return file;
}

/** Gives a pending file its final name, after its commit. */
export async function settleFailed(folder: string, file: string, commitId: string): Promise<void> {
  await rename(file, settledPath(folder, commitId));
}

/** Says whether a commit with this id follows the base version. */
export async function isCommitted(tableDir: string, baseVersion: number, commitId: string): Promise<boolean> {
  for (let version = baseVersion + 1; ; version += 1) {
    try {
      const { actions } = await readCommit(tableDir, version);
      if (actions.some((action) => findLakeState(action.commitInfo)?.commitId === commitId)) return true;
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return false;
      throw error;
    }
  }
}

/** Settles what a crash left: committed files get their final name, others go. Only for the one writer of the lake. */
export async function recoverFailed(folder: string, tableDir: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const [, base, commitId] = pendingName.exec(name) ?? [];
    if (base === undefined || commitId === undefined) continue;
    const file = path.join(folder, name);
    if (await isCommitted(tableDir, Number(base), commitId)) await settleFailed(folder, file, commitId);
    else await removeFile(file);
  }
  await syncFolder(folder);
}

/**
 * The lowest version that a file not yet settled builds on: the commits after it must stay. Infinity when all are
 * settled.
 */
export async function oldestPendingBase(folder: string): Promise<number> {
  const bases = (await readdir(folder)).flatMap((name) => pendingName.exec(name)?.[1] ?? []);
  return Math.min(Infinity, ...bases.map(Number));
}

/** Says whether the commit of a file that is not settled yet was made. */
async function isVisible(name: string, tableDir: string): Promise<boolean> {
  const [, base, commitId] = pendingName.exec(name) ?? [];
  return base !== undefined && commitId !== undefined && (await isCommitted(tableDir, Number(base), commitId));
}

/** Lists the files whose events count as failed, in the order of their names, at any moment. */
export async function listFailedFiles(folder: string, tableDir: string): Promise<string[]> {
  const files: string[] = [];
  for (const name of (await readdir(folder)).toSorted()) {
    // Nearly all of them are, and there may be very many.
    if (settledName.test(name) || (await isVisible(name, tableDir))) files.push(path.join(folder, name));
  }
  return files;
}

/** The files whose events count as failed: where each is, by its final name. */
export type FailedListing = ReadonlyMap<string, string>;

/** Two changes of a folder within this time, milliseconds, may leave it with the same time of its last change. */
const sameTimeMs = 1000;

/** When a folder was last changed, ns; undefined: there is none. */
function findChangeNs(folder: string): bigint | undefined {
  return statSync(folder, { bigint: true, throwIfNoEntry: false })?.mtimeNs;
}

/**
 * Creates a list of the files whose events count as failed, at any moment, for one who asks again and again: as long as
 * the folder does not change it is the same object, and nothing is read.
 */
export function createFailedList(folder: string, tableDir: string): () => Promise<FailedListing> {
  let known: { readonly changedNs: bigint; readonly listing: FailedListing } | undefined;

  return async () => {
    const changedNs = findChangeNs(folder);
    if (changedNs !== undefined && changedNs === known?.changedNs) return known.listing;
    const nowMs = Date.now();
    const listing = new Map<string, string>();
    let isSettled = true;
    for (const name of await findNames(folder)) {
      const [, , commitId] = pendingName.exec(name) ?? [];
      if (commitId !== undefined) {
        isSettled = false;
        const settled = path.basename(settledPath(folder, commitId));
        if (await isVisible(name, tableDir)) listing.set(settled, path.join(folder, name));
      } else if (settledName.test(name)) listing.set(name, path.join(folder, name));
    }
    const isSure = changedNs !== undefined && nowMs - Number(changedNs / 1_000_000n) > sameTimeMs;
    known = isSettled && isSure ? { changedNs, listing } : undefined;
    return listing;
  };
}

/** Ids of the commits after a version. */
async function listCommitIds(tableDir: string, afterVersion: number): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  for (let version = afterVersion + 1; ; version += 1) {
    try {
      const { actions } = await readCommit(tableDir, version);
      for (const { commitInfo } of actions) ids.add(findLakeState(commitInfo)?.commitId ?? '');
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return ids;
      throw error;
    }
  }
}

/** A file of failed events, as it belongs to one version of the table. */
export interface FailedFileAt {
  /** Where it was when it was listed, and where it may be since. */
  readonly files: readonly string[];
  /** Its final name. */
  readonly name: string;
}

/**
 * Lists the files whose events count as failed at a version that is not the newest any more, while flushes go on. Under
 * the maintenance lock, with nothing left to recover: whatever else changes these files is held up by it.
 */
export async function listFailedFilesAt(folder: string, tableDir: string, version: number): Promise<FailedFileAt[]> {
  const names = await readdir(folder);
  // Read after the folder: a file that has got its final name by then has its commit in the log.
  const later = await listCommitIds(tableDir, version);
  const found: FailedFileAt[] = [];
  for (const name of names) {
    const [, base, pendingId] = pendingName.exec(name) ?? [];
    const commitId = pendingId ?? (settledName.test(name) ? path.parse(name).name : undefined);
    if (commitId === undefined || later.has(commitId)) continue;
    if (base !== undefined && !(await isCommitted(tableDir, Number(base), commitId))) continue;
    const settled = settledPath(folder, commitId);
    found.push({ files: [...new Set([path.join(folder, name), settled])], name: path.basename(settled) });
  }
  return found;
}

/** Lists the files that have their final name: those that a rewrite may replace. */
export async function listSettledFiles(folder: string): Promise<string[]> {
  const names = await readdir(folder);
  return names
    .filter((name) => settledName.test(name))
    .toSorted()
    .map((name) => path.join(folder, name));
}

/**
 * Reads one file; one that was pending when it was listed, also under the name that it has got since. Errors:
 * `file_damaged`.
 */
export async function readFailedText(file: string): Promise<string> {
  const commitId = pendingName.exec(path.basename(file))?.[2];
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (commitId === undefined || !isSystemError(error, 'ENOENT')) throw error;
    return readFile(settledPath(path.dirname(file), commitId), 'utf8');
  });
  assertLines(text, file);
  return text;
}

/** Reads the events of one file, as `readFailedText`. */
export async function readFailedFile(file: string): Promise<FailedEvent[]> {
  return (await readFailedText(file))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const { check: _, ...event } = JSON.parse(line) as FailedEvent & { readonly check?: string };
      return event;
    });
}

/**
 * The rows of loaded files that could not be loaded, where that was allowed: a file for each load, in a folder for each
 * table below that of the failed events. It belongs to the commit of its load: it counts while the log says that this
 * load, in this generation, is in the table.
 */

const fileName = /^load-([0-9a-f]{32})-(\d+)\.ndjson(\.tmp)?$/;

/** The folder of a table's failed rows. */
export function failedRowsFolder(failedDir: string, tableDir: string): string {
  return path.join(failedDir, path.basename(tableDir));
}

const fileOf = (folder: string, loadId: string, generation: number): string =>
  path.join(folder, `load-${loadId}-${generation}.ndjson`);

/**
 * Writes the failed rows of a load whose commit is to come, durably and whole. The caller keeps other loads of the id
 * away (staging.ts).
 */
export async function writeFailedRows(
  folder: string,
  { loadId, generation }: { readonly loadId: string; readonly generation: number },
  events: readonly FailedEvent[],
): Promise<void> {
  await ensureFolder(folder);
  const file = fileOf(folder, loadId, generation);
  // What a killed load has left is written anew.
  const temporary = `${file}.tmp`;
  const handle = await open(temporary, 'w', 0o600);
  try {
    for (const event of events) await handle.appendFile(renderFailed([event]));
    await handle.sync();
  } finally {
    await handle.close();
  }
  await moveFile(temporary, file);
  await syncFolder(folder);
}

/** Lists the files whose rows count as failed by a state of the table's log, and those that do not. */
export async function listFailedRows(
  folder: string,
  txns: ReadonlyMap<string, number>,
): Promise<{ readonly files: readonly string[]; readonly stale: readonly string[] }> {
  const names = await findNames(folder);
  const files: string[] = [];
  const stale: string[] = [];
  for (const name of names.toSorted()) {
    const [, loadId = '', generation, temporary] = fileName.exec(name) ?? [];
    if (generation === undefined) continue;
    const state = findLoadState(txns, loadId);
    const isCounted = state?.generation === Number(generation) && state.status !== 'undone';
    const isLive = isCounted && temporary === undefined;
    (isLive ? files : stale).push(path.join(folder, name));
  }
  return { files, stale };
}

/** Removes the files of a load that do not count any more, or never did. */
export async function removeFailedRows(folder: string, files: readonly string[], loadId?: string): Promise<void> {
  const wanted = files.filter((file) => loadId === undefined || path.basename(file).startsWith(`load-${loadId}-`));
  for (const file of wanted) await removeFile(file);
  if (wanted.length > 0) await syncFolder(folder);
}

/** Counts the rows of some files of failed rows. */
export async function countFailedRows(files: readonly string[]): Promise<number> {
  let count = 0;
  for (const file of files) count += (await readFailedFile(file)).length;
  return count;
}
