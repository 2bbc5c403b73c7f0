import { createHash } from 'node:crypto';
import path from 'node:path';
import { ensureFolder } from '../../runtime/files/durable-file.ts';
import { AppError } from '../../runtime/errors.ts';
import { findLakeState, findLoadState } from '../log/lake-state.ts';
import { findCommit } from '../log/log-files.ts';
import { openEmptyFile } from '../../runtime/files/open-file.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { missingObject, findText, type ObjectStore, type Tag } from '../../runtime/store/object-store.ts';

export const failureReasons = ['bad_json', 'bad_value', 'key_reused', 'too_large'] as const;
export type FailureReason = (typeof failureReasons)[number];

/** An event that could not be written: a line of JSON in a file of `failed/`. */
export interface FailedEvent {
  readonly reason: FailureReason;
  /** ISO 8601. */
  readonly failedAt: string;
  /** The event as in the stream. */
  readonly line: string;
  /** Bytes of a line that is not UTF-8. */
  readonly lineBase64?: string;
  /** Set for a row of a loaded file, whose `line` is the row as JSON. */
  readonly load?: {
    readonly id: string;
    readonly dataset: string;
    /** Line of the file, or number of the row. */
    readonly line: number;
    readonly reason: string;
    readonly field?: string;
    /** Schema names of the row's fields, if the load had a map; null: dropped. */
    readonly map?: Readonly<Record<string, string | null>>;
    /** The app of rows without one, if the load had it. */
    readonly idApp?: number;
  };
}

/** A file is `pending-VERSION-` until its commit. After a crash the log decides: events are kept exactly once. */
const pendingName = /^pending-(\d+)-([0-9a-f-]{36})\.ndjson$/;
const settledName = /^[0-9a-f-]{36}\.ndjson$/;

const settledKey = (commitId: string): string => `${commitId}.ndjson`;

const checkOf = (rest: string): string => createHash('sha256').update(rest).digest('hex').slice(0, 16);
const checkedHead = /^\{"check":"([0-9a-f]{16})",/;
/** Start of a line before 0.4, without a checksum. */
const uncheckedHead = /^\{"(?:reason|line|lineBase64|failedAt|load)":/;

/** Renders failed events as lines of JSON, each with a checksum first. */
export function renderFailed(events: readonly FailedEvent[]): string {
  return events
    .map((event) => {
      const rest = JSON.stringify(event).slice(1);
      return `{"check":"${checkOf(rest)}",${rest}\n`;
    })
    .join('');
}

/** Throws `file_damaged` for a changed line. */
function assertLines(text: string, file: string): void {
  for (const [index, line] of text.split('\n').entries()) {
    const [head, check] = checkedHead.exec(line) ?? [];
    if (head === undefined ? line === '' || uncheckedHead.test(line) : checkOf(line.slice(head.length)) === check)
      continue;
    throw new AppError('file_damaged', `${file} is damaged: checksum mismatch in line ${index + 1}`, {
      hint: "Restore the file from a backup; 'tributary lake check' lists all damaged files.",
    });
  }
}

const failedStore = (folder: string): ObjectStore => openStore(folder, { isGrowing: true });

/** Writes failed events durably before their commit. Returns the path for `publishFailedFile`. */
export async function writePendingFailed(
  folder: string,
  baseVersion: number,
  commitId: string,
  events: readonly FailedEvent[],
): Promise<string> {
  const name = `pending-${baseVersion}-${commitId}.ndjson`;
  await failedStore(folder).add(name, Buffer.from(renderFailed(events)));
  return path.join(folder, name);
}

export async function publishFailedFile(folder: string, file: string, commitId: string): Promise<void> {
  await failedStore(folder).move(path.basename(file), settledKey(commitId));
}

export async function removeFailedFile(folder: string, file: string): Promise<void> {
  await failedStore(folder).remove([path.basename(file)]);
}

/** Reports whether a commit with this id follows the base version. */
export async function isCommitted(tableDir: string, baseVersion: number, commitId: string): Promise<boolean> {
  for (let version = baseVersion + 1; ; version += 1) {
    const commit = await findCommit(tableDir, version);
    if (commit === undefined) return false;
    if (commit.actions.some(({ commitInfo }) => findLakeState(commitInfo)?.commitId === commitId)) return true;
  }
}

interface FailedName {
  readonly name: string;
  readonly commitId: string;
  readonly base: number | undefined;
}

async function listNames(folder: string): Promise<FailedName[]> {
  const names = (await failedStore(folder).list('')).toSorted();
  return names.flatMap((name) => {
    const [, base, pendingId] = pendingName.exec(name) ?? [];
    if (pendingId !== undefined) return { name, commitId: pendingId, base: Number(base) };
    return settledName.test(name) ? { name, commitId: path.parse(name).name, base: undefined } : [];
  });
}

/** Reports whether the events of a file count. Nearly all files are settled. */
const isVisible = async ({ base, commitId }: FailedName, tableDir: string): Promise<boolean> =>
  base === undefined || (await isCommitted(tableDir, base, commitId));

/** Renames committed files and removes others after a crash. Only for the lake's one writer. */
export async function recoverFailed(folder: string, tableDir: string): Promise<void> {
  const names = await listNames(folder);
  for (const found of names) {
    const { name, base, commitId } = found;
    if (base === undefined) continue;
    if (await isVisible(found, tableDir)) await publishFailedFile(folder, name, commitId);
    else await removeFailedFile(folder, name);
  }
  await failedStore(folder).sync(names.map(({ name }) => name));
}

/** Returns the lowest version below a pending file, which trimming must keep. Infinity if all are settled. */
export async function findOldestPendingBase(folder: string): Promise<number> {
  let oldest = Infinity;
  // Nearly all files are settled: a large folder is neither sorted nor described.
  for (const name of await failedStore(folder).list(''))
    oldest = Math.min(oldest, Number(pendingName.exec(name)?.[1] ?? Infinity));
  return oldest;
}

/** Lists the names of files whose events count as failed. */
export async function listFailedFiles(folder: string, tableDir: string): Promise<string[]> {
  const files: string[] = [];
  for (const found of await listNames(folder))
    if (await isVisible(found, tableDir)) files.push(path.join(folder, found.name));
  return files;
}

/** Paths of files whose events count as failed, by final name. */
export type FailedListing = ReadonlyMap<string, string>;

/** Creates a cached list of the files whose events count as failed. */
export function createFailedList(folder: string, tableDir: string): () => Promise<FailedListing> {
  let known: { readonly tag: Tag; readonly listing: FailedListing } | undefined;

  return async () => {
    const tag = await failedStore(folder).findListTag('');
    if (tag !== undefined && tag === known?.tag) return known.listing;
    const names = await listNames(folder);
    const listing = new Map<string, string>();
    for (const found of names)
      if (await isVisible(found, tableDir)) listing.set(settledKey(found.commitId), path.join(folder, found.name));
    const isSettled = names.every(({ base }) => base === undefined);
    known = isSettled && tag !== undefined ? { tag, listing } : undefined;
    return listing;
  };
}

async function listCommitIds(tableDir: string, afterVersion: number): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  for (let version = afterVersion + 1; ; version += 1) {
    const commit = await findCommit(tableDir, version);
    if (commit === undefined) return ids;
    for (const { commitInfo } of commit.actions) ids.add(findLakeState(commitInfo)?.commitId ?? '');
  }
}

export interface FailedFileAt {
  /** Its paths, pending and final. */
  readonly files: readonly string[];
  readonly name: string;
}

/** Lists the files whose events count as failed at an older version. Under the maintenance lock, after a recovery. */
export async function listFailedFilesAt(folder: string, tableDir: string, version: number): Promise<FailedFileAt[]> {
  const names = await listNames(folder);
  // Read after the folder: a file that was renamed by then has its commit in the log.
  const later = await listCommitIds(tableDir, version);
  const found: FailedFileAt[] = [];
  for (const one of names) {
    if (later.has(one.commitId) || !(await isVisible(one, tableDir))) continue;
    const name = settledKey(one.commitId);
    found.push({ files: [...new Set([one.name, name])].map((file) => path.join(folder, file)), name });
  }
  return found;
}

/** Lists the files with their final name, which a rewrite may replace. */
export async function listPublishedFiles(folder: string): Promise<string[]> {
  const names = await listNames(folder);
  return names.filter(({ base }) => base === undefined).map(({ name }) => path.join(folder, name));
}

/** Reads a file, also a pending one that was renamed. Errors: `file_damaged`, ENOENT. */
export async function readFailedText(file: string): Promise<string> {
  const store = failedStore(path.dirname(file));
  const commitId = pendingName.exec(path.basename(file))?.[2];
  const text =
    (await findText(store, path.basename(file))) ??
    (commitId === undefined ? undefined : await findText(store, settledKey(commitId)));
  if (text === undefined) throw missingObject(file);
  assertLines(text, file);
  return text;
}

export async function readFailedFile(file: string): Promise<FailedEvent[]> {
  return (await readFailedText(file))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const { check: _, ...event } = JSON.parse(line) as FailedEvent & { readonly check?: string };
      return event;
    });
}

/** Failed rows of loads have a file per load. It counts while the log has its load and generation. */

/** The suffix is of a load that was killed while 0.3 or an earlier version wrote the file. */
const fileName = /^load-([0-9a-f]{32})-(\d+)\.ndjson(\.tmp)?$/;

export function failedRowsFolder(failedDir: string, tableDir: string): string {
  return path.join(failedDir, path.basename(tableDir));
}

/**
 * Writes failed rows of a load durably before its commit. The caller excludes other loads of the id (staging.ts).
 * `workFolder`: the load's own staging folder, which a recovery removes.
 */
export async function writeFailedRows(
  folder: string,
  workFolder: string,
  { loadId, generation }: { readonly loadId: string; readonly generation: number },
  events: readonly FailedEvent[],
): Promise<void> {
  await ensureFolder(folder);
  const name = `load-${loadId}-${generation}.ndjson`;
  const temporary = path.join(workFolder, name);
  const handle = await openEmptyFile(temporary);
  try {
    for (const event of events) await handle.appendFile(renderFailed([event]));
  } finally {
    await handle.close();
  }
  await failedStore(folder).upload(name, temporary);
}

/** Lists the files whose rows count as failed in a state of the log, and the stale ones. */
export async function listFailedRows(
  folder: string,
  txns: ReadonlyMap<string, number>,
): Promise<{ readonly files: readonly string[]; readonly stale: readonly string[] }> {
  const store = failedStore(folder);
  const names = [...(await store.list('')), ...(await store.listUnfinished(''))];
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

export async function removeFailedRows(folder: string, files: readonly string[], loadId?: string): Promise<void> {
  const names = files.map((file) => path.basename(file));
  await failedStore(folder).remove(names.filter((name) => loadId === undefined || name.startsWith(`load-${loadId}-`)));
}

export async function countFailedRows(files: readonly string[]): Promise<number> {
  let count = 0;
  for (const file of files) count += (await readFailedFile(file)).length;
  return count;
}
