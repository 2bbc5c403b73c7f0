import { randomBytes } from 'node:crypto';
import { appendFile, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { removeEmptyFolder, removeFile } from '../runtime/files/durable-file.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { bodyPolicies, parseRecord, type BodyPolicy, type RefusalRecord } from './refusal-record.ts';

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
export interface RefusalWriter {
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
