import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { isRecord, membersOf } from '../runtime/files/checksummed-json.ts';
import { findTextFile, removeEmptyFolder, removeFile } from '../runtime/files/durable-file.ts';
import { findSize } from '../runtime/files/file-checks.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { acceptFormerNames, withFormerNames } from '../runtime/former-names.ts';
import { appendText, removeTree } from '../runtime/files/work-files.ts';

/**
 * Refusals: recent rejected requests of each app, with their reasons.
 *
 * In: records of rejected requests with a valid token, from ingest. Out: the newest records of an app, for its
 * clients, the users of its account and operators.
 * Invariant: size and age are bounded, per app and in total. No request waits for a record, and none is durable.
 * Crash: the records of the last second are lost; a truncated last line is skipped.
 */

/**
 * Recorded part of a rejected body: nothing; its shape, with names of known fields and no values; or its text. Later
 * values show more.
 */
const bodyPolicies = ['off', 'redacted', 'on'] as const;
export type BodyPolicy = (typeof bodyPolicies)[number];

export interface RefusalFault {
  /** JSON pointer into the body; empty: the whole request. */
  readonly pointer: string;
  readonly reason: string;
  readonly hint?: string;
}

/** Similar rejected requests of an app within about a second; less than 8 KiB as JSON. */
export interface RefusalRecord {
  /** Time of the first response, ISO 8601. */
  readonly time: string;
  /** The import method, or the path of another request. */
  readonly method: string;
  readonly status: number;
  readonly error: string;
  readonly detail: string;
  /** Some validation errors of the first one. */
  readonly errors: readonly RefusalFault[];
  /** The event, or the start of the body, as the setting permits. */
  readonly excerpt?: string;
  /** Bytes of the first body as sent; 0 if it was not read. */
  readonly bytes: number;
  /** Whether the first one had an Idempotency-Key. */
  readonly hasIdempotencyKey: boolean;
  /** Whether the first one was only to be validated (`validate=1`). */
  readonly isValidation: boolean;
  readonly requests: number;
  /** Requests rejected for other reasons since the previous record, which have none: there were too many. */
  readonly requestsNotRecorded?: number;
}

/** The newest records of an app. */
export interface FoundRefusals {
  readonly refusals: readonly RefusalRecord[];
  /** Hosts that did not answer, which may have more; absent if none. */
  readonly hostsWithoutAnswer?: readonly string[];
}

function isRefusalRecord(value: object): value is RefusalRecord {
  const { time, method, status, error, detail, errors, requests } = membersOf(value);
  return (
    [time, method, error, detail].every((text) => typeof text === 'string') &&
    [status, requests].every((count) => Number.isSafeInteger(count)) &&
    Number.isFinite(Date.parse(String(time))) &&
    Array.isArray(errors)
  );
}

/** Parses a line, also of 0.3; undefined if it is truncated or damaged. Its JSON has the former names too. */
export function parseRefusalRecord(line: string): RefusalRecord | undefined {
  try {
    const value: unknown = JSON.parse(line);
    const record = isRecord(value) ? acceptFormerNames('refusal', value) : {};
    return isRefusalRecord(record) ? withFormerNames('refusal', record) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Files of records: `<app>/<first record's Unix ms>-<process>.<body policy>.ndjson`. Each process appends to its own
 * files, so that any number of processes and hosts share the folder. Nothing is fsynced: records are not promised, and
 * a flood of refusals must not cause a flood of fsyncs.
 */
const namePattern = /^(\d{1,15})-[0-9a-f]{12}(?:\.(off|redacted|on))?\.ndjson$/;

/** Limits of a file, after which the next begins. Expired records are removed by file. */
const maxFileBytes = 32 * 1024;
const maxFileSpanMs = 3_600_000;
/** Limits per app: the oldest files are removed first. */
const maxAppBytes = 256 * 1024;
const maxAppFiles = 32;
/** Limits of all apps together; a small file takes a block of the disk. */
const maxBytes = 64 * 1024 * 1024;
const maxFiles = 16_384;

export interface RefusalFolder {
  readonly folder: string;
  /**
   * The policy that applies to readers: records that show more are neither returned nor kept. A caller with another
   * setting than the service passes `on`.
   */
  readonly bodies: BodyPolicy;
  /** Lifetime of a record, ms; its file is removed an hour and a sweep later. */
  readonly ageMs: number;
}

interface RefusalFile {
  readonly path: string;
  readonly firstMs: number;
  readonly bodies: BodyPolicy;
}

const showsMore = (file: RefusalFile, bodies: BodyPolicy): boolean =>
  bodyPolicies.indexOf(file.bodies) > bodyPolicies.indexOf(bodies);

interface RefusalWriter {
  /** Appends records of an app. Errors: the system's; the records are then lost. */
  append(idApp: number, records: readonly RefusalRecord[], nowMs: number): Promise<void>;
}

/** Lists files, oldest first. */
async function listFiles(folder: string): Promise<RefusalFile[]> {
  return (await findNames(folder))
    .flatMap((name) => {
      const [, firstMs, policy] = namePattern.exec(name) ?? [];
      if (firstMs === undefined) return [];
      const bodies = bodyPolicies.find((known) => known === policy) ?? 'on';
      return [{ path: path.join(folder, name), firstMs: Number(firstMs), bodies }];
    })
    .toSorted((a, b) => a.firstMs - b.firstMs);
}

/** Removes the oldest files beyond the limits. */
async function removeOldest(files: readonly RefusalFile[], mostBytes: number, mostFiles: number): Promise<void> {
  let bytes = 0;
  let seenFiles = 0;
  for (const file of files.toReversed()) {
    bytes += (await findSize(file.path)) ?? 0;
    seenFiles += 1;
    if (bytes > mostBytes || seenFiles > mostFiles) await removeFile(file.path);
  }
}

/** Creates the writer of one process. `bodies`: what its records show. */
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
      // A full disk may have truncated the previous line: each begins with an end of line.
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
        await appendText(target.file, text);
      } catch (error) {
        // An erasure or a sweep has removed the folder. For any other cause, each append would begin a file.
        if (!isSystemError(error, 'ENOENT')) throw error;
        await appendText((await begin(idApp, nowMs, bytes)).file, text);
      }
    },
  };
}

/** Reads the newest records of an app, newest first, without expired ones. */
export async function readRefusals(
  { folder, bodies, ageMs }: RefusalFolder,
  idApp: number,
  { nowMs, most }: { readonly nowMs: number; readonly most: number },
): Promise<readonly RefusalRecord[]> {
  const found: RefusalRecord[] = [];
  for (const file of await listFiles(path.join(folder, String(idApp)))) {
    if (showsMore(file, bodies)) continue;
    const text = (await findTextFile(file.path)) ?? '';
    for (const line of text.split('\n')) {
      const record = line === '' ? undefined : parseRefusalRecord(line);
      if (record !== undefined && Date.parse(record.time) >= nowMs - ageMs) found.push(record);
    }
  }
  return found.toSorted((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, most);
}

/**
 * Removes files with only expired records, with more of bodies than permitted, or with a time in the future, and the
 * oldest beyond the limits. Any process may call it.
 */
export async function sweepRefusals({ folder, bodies, ageMs }: RefusalFolder, nowMs: number): Promise<void> {
  const remaining: RefusalFile[] = [];
  for (const app of await findNames(folder)) {
    if (!/^[1-9]\d{0,15}$/.test(app)) continue;
    for (const file of await listFiles(path.join(folder, app))) {
      const isOver = file.firstMs + maxFileSpanMs + ageMs < nowMs || file.firstMs > nowMs + maxFileSpanMs;
      if (isOver || showsMore(file, bodies)) await removeFile(file.path);
      else remaining.push(file);
    }
    await removeEmptyFolder(path.join(folder, app));
  }
  const files = remaining.toSorted((a, b) => a.firstMs - b.firstMs);
  await removeOldest(files, maxBytes, maxFiles);
}

/**
 * Removes all records of some apps, or of every app, since a rejected body may be about any person. Returns whether
 * there were any.
 */
export async function removeRefusals(folder: string, apps?: readonly number[]): Promise<boolean> {
  const names = (await findNames(folder)).filter((name) => apps === undefined || apps.includes(Number(name)));
  for (const name of names) await removeTree(path.join(folder, name));
  return names.length > 0;
}
