import { randomBytes } from 'node:crypto';
import { appendFile, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { removeEmptyFolder, removeFile } from '../runtime/files/durable-file.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { removeTree } from '../runtime/files/work-files.ts';

/**
 * Refusals: what of an app was refused lately, and why, kept for whoever sends for it.
 *
 * In: records of refused requests whose token suited their app, from ingest. Out: the newest of an app, to the app's
 * sender, the users of its account and the operator.
 * Invariant: bounded by app, in all and by age (refusal-files.ts); no request waits for them, and none is durable.
 * Crash: the records of the last second are gone, or the last line of a file is cut off and passed over.
 */

/**
 * What is kept of the bodies of refused requests: nothing; their shape, with the names of known fields and neither
 * values nor names of the sender's own; or their text. The later ones show more.
 */
const bodyPolicies = ['off', 'redacted', 'on'] as const;
export type BodyPolicy = (typeof bodyPolicies)[number];

/** One thing that was wrong with a request. */
export interface RefusalFault {
  /** JSON pointer into the body; empty: the request as a whole. */
  readonly pointer: string;
  readonly reason: string;
  /** What was probably meant. */
  readonly hint?: string;
}

/** Requests of an app that were refused alike within a second or so, as their sender sees them: below 8 KiB as JSON. */
export interface RefusalRecord {
  /** When the first of them was answered, ISO 8601. */
  readonly time: string;
  /** The import method; of another path the path. */
  readonly method: string;
  /** Status and text of the answer. */
  readonly status: number;
  readonly error: string;
  readonly detail: string;
  /** What was wrong with the first of them; a few of its faults. */
  readonly faults: readonly RefusalFault[];
  /** The event in question, or the beginning of the body, as the operator's setting shows it. */
  readonly excerpt?: string;
  /** Bytes of the first one's body as it was sent; 0 where it was not read. */
  readonly bytes: number;
  /** The first one had an Idempotency-Key. */
  readonly hasIdempotencyKey: boolean;
  /** The first one was only to be checked (`validate=1`). */
  readonly isValidation: boolean;
  /** How many they were. */
  readonly requests: number;
  /** Requests that were refused for other reasons since the record before, and have none: there were too many. */
  readonly leftOut?: number;
}

function isRecord(value: unknown): value is RefusalRecord {
  if (typeof value !== 'object' || value === null) return false;
  const { time, method, status, error, detail, faults, requests } = value as Partial<RefusalRecord>;
  return (
    [time, method, error, detail].every((text) => typeof text === 'string') &&
    [status, requests].every((count) => Number.isSafeInteger(count)) &&
    Number.isFinite(Date.parse(time ?? '')) &&
    Array.isArray(faults)
  );
}

/** Reads a line of a file of records; undefined where it was cut off or is damaged. */
export function parseRecord(line: string): RefusalRecord | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The files of the records: `<app>/<first record's Unix ms>-<process>.<what they show of bodies>.ndjson`. Each process
 * appends to files of its own, which nobody else writes, so that any number of processes on any number of hosts share
 * the folder. Nothing is fsynced: what a power cut takes is no promise, and a flood of refusals is no flood of fsyncs.
 */
const namePattern = /^(\d{1,15})-[0-9a-f]{12}(?:\.(off|redacted|on))?\.ndjson$/;

/** A file grows to this size, and for this long: then the next is begun. What lapses by age goes by whole files. */
const maxFileBytes = 32 * 1024;
const maxFileSpanMs = 3_600_000;
/** Most that an app has, in all its files: the oldest go first. */
const maxAppBytes = 256 * 1024;
const maxAppFiles = 32;
/** Most that all apps have together; a small file takes a block of the disk. */
const maxBytes = 64 * 1024 * 1024;
const maxFiles = 16_384;

/** Where the records are, which of them, and for how long. */
export interface RefusalFolder {
  readonly folder: string;
  /**
   * What may be seen of bodies: records of a time when more was shown are neither given out nor kept. The caller whose
   * setting is not the service's own says `on`.
   */
  readonly bodies: BodyPolicy;
  /** A record is given out for so long, milliseconds; its file is gone an hour and a sweep later. */
  readonly ageMs: number;
}

/** A file of records. */
interface RefusalFile {
  readonly path: string;
  readonly firstMs: number;
  readonly bodies: BodyPolicy;
}

const showsMore = (file: RefusalFile, bodies: BodyPolicy): boolean =>
  bodyPolicies.indexOf(file.bodies) > bodyPolicies.indexOf(bodies);

/** What one process appends to. */
interface RefusalWriter {
  /** Appends records of an app. Errors: the system's; the records are lost then. */
  append(idApp: number, records: readonly RefusalRecord[], nowMs: number): Promise<void>;
}

/** Lists the files of a folder, oldest first. */
async function listFiles(folder: string): Promise<RefusalFile[]> {
  return (await findNames(folder))
    .flatMap((name) => {
      const [, firstMs, bodies = 'on'] = namePattern.exec(name) ?? [];
      if (firstMs === undefined) return [];
      return [{ path: path.join(folder, name), firstMs: Number(firstMs), bodies: bodies as BodyPolicy }];
    })
    .toSorted((a, b) => a.firstMs - b.firstMs);
}

async function findBytes(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return 0;
    throw error;
  }
}

/** Removes the oldest files until the others are within the bounds. */
async function removeOldest(files: readonly RefusalFile[], mostBytes: number, mostFiles: number): Promise<void> {
  let bytes = 0;
  let kept = 0;
  for (const file of files.toReversed()) {
    bytes += await findBytes(file.path);
    kept += 1;
    if (bytes > mostBytes || kept > mostFiles) await removeFile(file.path);
  }
}

/** Creates the writer of one process; the folder is made with the first record. `bodies`: what its records show. */
export function createRefusalWriter(root: string, bodies: BodyPolicy): RefusalWriter {
  const writer = randomBytes(6).toString('hex');
  const current = new Map<number, { readonly file: string; readonly firstMs: number; bytes: number }>();

  async function begin(idApp: number, nowMs: number, bytes: number) {
    const folder = path.join(root, String(idApp));
    await makeFolder(folder);
    await removeOldest(await listFiles(folder), maxAppBytes - Math.max(maxFileBytes, bytes), maxAppFiles - 1);
    const begun = { file: path.join(folder, `${nowMs}-${writer}.${bodies}.ndjson`), firstMs: nowMs, bytes: 0 };
    current.set(idApp, begun);
    return begun;
  }

  return {
    async append(idApp, records, nowMs) {
      // The line before may have been cut off, by a disk that was full: each begins with an end of line.
      const text = records.map((record) => `\n${JSON.stringify(record)}`).join('');
      const bytes = Buffer.byteLength(text);
      const open = current.get(idApp);
      const isOpen =
        open !== undefined &&
        open.bytes + bytes <= maxFileBytes &&
        nowMs >= open.firstMs &&
        nowMs - open.firstMs < maxFileSpanMs;
      const target = isOpen ? open : await begin(idApp, nowMs, bytes);
      target.bytes += bytes;
      try {
        await appendFile(target.file, text, { mode: 0o600 });
      } catch (error) {
        // An erasure, or a sweep, has removed the folder. Of any other cause a file after the other would be begun.
        if (!isSystemError(error, 'ENOENT')) throw error;
        await appendFile((await begin(idApp, nowMs, bytes)).file, text, { mode: 0o600 });
      }
    },
  };
}

/** Reads the newest records of an app, newest first; what has lapsed by age is left out. */
export async function readRefusals(
  { folder, bodies, ageMs }: RefusalFolder,
  idApp: number,
  { nowMs, most }: { readonly nowMs: number; readonly most: number },
): Promise<readonly RefusalRecord[]> {
  const found: RefusalRecord[] = [];
  for (const file of await listFiles(path.join(folder, String(idApp)))) {
    if (showsMore(file, bodies)) continue;
    const text = await readFile(file.path, 'utf8').catch((error: unknown) => {
      if (isSystemError(error, 'ENOENT')) return '';
      throw error;
    });
    for (const line of text.split('\n')) {
      const record = line === '' ? undefined : parseRecord(line);
      if (record !== undefined && Date.parse(record.time) >= nowMs - ageMs) found.push(record);
    }
  }
  return found.toSorted((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, most);
}

/**
 * Removes the files whose records have all lapsed, those that show more of bodies than they may, those of a clock that
 * went wrong, and the oldest where all together are too many. Any process may do so at any time.
 */
export async function sweepRefusals({ folder, bodies, ageMs }: RefusalFolder, nowMs: number): Promise<void> {
  const kept: RefusalFile[] = [];
  for (const app of await findNames(folder)) {
    if (!/^[1-9]\d{0,15}$/.test(app)) continue;
    for (const file of await listFiles(path.join(folder, app))) {
      const isOver = file.firstMs + maxFileSpanMs + ageMs < nowMs || file.firstMs > nowMs + maxFileSpanMs;
      if (isOver || showsMore(file, bodies)) await removeFile(file.path);
      else kept.push(file);
    }
    await removeEmptyFolder(path.join(folder, app));
  }
  const files = kept.toSorted((a, b) => a.firstMs - b.firstMs);
  await removeOldest(files, maxBytes, maxFiles);
}

/**
 * Removes all records of the apps, or of every app: nobody knows whom a body that was refused is about. Says whether
 * there were any.
 */
export async function removeRefusals(folder: string, apps?: readonly number[]): Promise<boolean> {
  const names = (await findNames(folder)).filter((name) => apps === undefined || apps.includes(Number(name)));
  for (const name of names) await removeTree(path.join(folder, name));
  return names.length > 0;
}
