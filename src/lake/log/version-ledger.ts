import { createHash } from 'node:crypto';
import { copyFile, open, truncate, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { syncFolder } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';

/**
 * What the log said of versions whose commits are trimmed: up to which `available_at` the table had its rows then. So
 * `sinceVersion` holds for as long as the lake is there, and not only for the retention.
 *
 * One line of 45 bytes a version, in growing order, so that a version is found by a search in the file:
 * `VERSION,AVAILABLE_AT_MS,MARK,CHECK`, numbers with leading zeros, MARK eight hex digits that tell this history from
 * another with the same versions, CHECK those of the SHA-256 of the line before it. A version without a line of its own
 * brought no rows: it has what the line before says. A line with the mark `--------` says that from there on nothing is
 * known. A flush each five seconds is 284 MB a year.
 * Crash: lines are appended and fsynced before their commits go; what is cut off is written again.
 */

/** Where a version stands in the order of rows. */
export interface VersionPoint {
  readonly version: number;
  /** The newest `available_at` that the lake had given out, Unix milliseconds. */
  readonly availableAtMs: number;
  /**
   * Tells the commit that gave that time from those of another history, such as what a lake had committed before it was
   * restored from an older backup; undefined: a version of the service that wrote none made it.
   */
  readonly mark: string | undefined;
}

/** What a line says; without a point nothing is known from that version on. */
export interface LedgerLine {
  readonly version: number;
  readonly point: VersionPoint | undefined;
}

const lineBytes = 45;
const nothingKnown = '--------';
/** The mark of a point that has none, such as that of a table without rows. */
export const unmarked = '00000000';
const linePattern = /^(\d{12}),(\d{13}),([0-9a-f]{8}|-{8}),([0-9a-f]{8})\n$/;

/** Name of the ledger; the leading underscore hides it from readers of folders and other engines' clean-up. */
export const ledgerName = '_versions.csv';

/** The ledger of a table. */
export function ledgerFile(tableDir: string): string {
  return path.join(tableDir, ledgerName);
}

function digits(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

/** The mark of the commit that gave a time. */
export function markOf(commitId: string | undefined): string | undefined {
  return commitId === undefined ? undefined : digits(commitId);
}

/** The line of a version. */
export function renderLine({ version, point }: LedgerLine): string {
  const mark = point === undefined ? nothingKnown : (point.mark ?? unmarked);
  const text = `${String(version).padStart(12, '0')},${String(point?.availableAtMs ?? 0).padStart(13, '0')},${mark}`;
  return `${text},${digits(text)}\n`;
}

/** Reads a line; undefined when it is not one that was written. */
function parseLine(text: string): LedgerLine | undefined {
  const [, versionText, availableAtMs, mark, check] = linePattern.exec(text) ?? [];
  if (versionText === undefined || digits(text.slice(0, -10)) !== check) return undefined;
  const version = Number(versionText);
  if (mark === nothingKnown) return { version, point: undefined };
  const point = { version, availableAtMs: Number(availableAtMs), mark: mark === unmarked ? undefined : mark };
  return { version, point };
}

/** Lines that are read at a time. */
const linesTogether = 1024;

/** The error of a ledger that is not what was written. */
export function ledgerError(tableDir: string): AppError {
  return new AppError('log_damaged', `${ledgerFile(tableDir)} is damaged`, {
    hint: 'Put it back from a backup; or remove it, when there is none: what is asked for since an older version than the log has is refused then.',
  });
}

/** Reads some lines, whole or broken; undefined stands for one that was not written so. */
async function readLines(file: FileHandle, from: number, count: number): Promise<(LedgerLine | undefined)[]> {
  const { buffer, bytesRead } = await file.read(
    Buffer.alloc(count * lineBytes),
    0,
    count * lineBytes,
    from * lineBytes,
  );
  const text = buffer.toString('latin1', 0, bytesRead);
  return Array.from({ length: Math.floor(bytesRead / lineBytes) }, (_, n) =>
    parseLine(text.slice(n * lineBytes, (n + 1) * lineBytes)),
  );
}

/** How far the ledger is whole. */
export interface LedgerEnd {
  /** Lines up to the last that is whole. */
  readonly lines: number;
  /** That line; undefined: there is none. */
  readonly last: LedgerLine | undefined;
  /** Something comes after it: a crash has cut it off, or it is damaged. */
  readonly isCutOff: boolean;
}

async function readEnd(file: FileHandle): Promise<LedgerEnd> {
  const { size } = await file.stat();
  // The last one is nearly always whole, and each look for a version asks for it.
  let together = 1;
  for (let to = Math.floor(size / lineBytes), from; to > 0; to = from) {
    from = Math.max(0, to - together);
    together = linesTogether;
    const read = await readLines(file, from, to - from);
    const at = read.findLastIndex((line) => line !== undefined);
    const lines = from + at + 1;
    if (at >= 0) return { lines, last: read[at], isCutOff: size > lines * lineBytes };
  }
  return { lines: 0, last: undefined, isCutOff: size > 0 };
}

async function withLedger<T>(tableDir: string, absent: T, work: (file: FileHandle) => Promise<T>): Promise<T> {
  let file: FileHandle;
  try {
    file = await open(ledgerFile(tableDir), 'r');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return absent;
    throw error;
  }
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

/** Finds how far the ledger is whole; a table without one has an empty one. */
export function findEnd(tableDir: string): Promise<LedgerEnd> {
  return withLedger<LedgerEnd>(tableDir, { lines: 0, last: undefined, isCutOff: false }, readEnd);
}

/**
 * The numbers, from 1 on, of the lines before the last whole one that are not what was written, at most some. A line may
 * stand twice: of two compactors, one of which was stopped in mid-trimming and has lost its lease, each appends it.
 */
export function findBrokenLines(tableDir: string): Promise<number[]> {
  return withLedger<number[]>(tableDir, [], async (file) => {
    const { lines } = await readEnd(file);
    const broken: number[] = [];
    let before: LedgerLine | undefined;
    for (let from = 0; from < lines && broken.length < 10; from += linesTogether) {
      for (const [n, line] of (await readLines(file, from, Math.min(linesTogether, lines - from))).entries()) {
        const isNext =
          line !== undefined && (line.version > (before?.version ?? -1) || isDeepStrictEqual(line, before));
        if (!isNext) broken.push(from + n + 1);
        before = line ?? before;
      }
    }
    return broken.slice(0, 10);
  });
}

/**
 * What the ledger says of a version; undefined when it does not cover it, or says that nothing is known. Errors:
 * `log_damaged` when it is damaged where it would say it.
 */
export function findInLedger(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  return withLedger<VersionPoint | undefined>(tableDir, undefined, async (file) => {
    const { lines, last, isCutOff } = await readEnd(file);
    if (version > (last?.version ?? -1)) {
      // What a crash has cut off is in the log still, where it was looked for before.
      if (isCutOff) throw ledgerError(tableDir);
      return undefined;
    }
    const lineAt = async (index: number): Promise<LedgerLine> => {
      const [line] = await readLines(file, index, 1);
      if (line === undefined) throw ledgerError(tableDir);
      return line;
    };
    let [low, high] = [0, lines];
    // The last line whose version is not above: every line before `low` is not, every one from `high` on is.
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((await lineAt(middle)).version <= version) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? undefined : (await lineAt(low - 1)).point;
  });
}

/** Appends lines durably, in place of what a crash has cut off. The caller has seen that they follow the last one. */
export async function appendLines(tableDir: string, lines: readonly LedgerLine[]): Promise<void> {
  if (lines.length === 0) return;
  const file = await open(ledgerFile(tableDir), 'a+', tableFileMode);
  try {
    const { lines: whole } = await readEnd(file);
    await file.truncate(whole * lineBytes);
    await file.appendFile(lines.map(renderLine).join(''));
    await file.sync();
  } finally {
    await file.close();
  }
  // A power cut could take the whole file, when it is new, and not the removal of the commits.
  await syncFolder(tableDir);
}

/** What a copy of a ledger is to have. */
export interface LedgerCopy {
  /**
   * So many lines of the original, from the first on, which stay as they are: what was appended since they were counted
   * is left out.
   */
  readonly lines: number;
  /** Those that follow them. */
  readonly added: readonly LedgerLine[];
}

/** Copies the ledger of a table into another folder, with further lines; none there is replaced. */
export async function copyLedger(tableDir: string, folder: string, { lines, added }: LedgerCopy): Promise<void> {
  try {
    await copyFile(ledgerFile(tableDir), ledgerFile(folder));
    await truncate(ledgerFile(folder), lines * lineBytes);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
  }
  await appendLines(folder, added);
}
