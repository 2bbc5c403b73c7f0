import { copyStart, openAppendedFile } from '../../runtime/files/appended-file.ts';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { AppError, unlessMissing } from '../../runtime/errors.ts';
import { syncFolder } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { openForReading, type FileHandle } from '../../runtime/files/open-file.ts';

/**
 * Newest `available_at` of versions whose commits are trimmed. It keeps `sinceVersion` valid beyond the retention.
 *
 * Fixed-size lines of 45 bytes in ascending order allow a binary search: `VERSION,AVAILABLE_AT_MS,TAG,CHECK`. TAG
 * distinguishes histories with equal versions. CHECK is from the SHA-256 of the text before it. A version without rows
 * has no line. Versions from a line with the tag `--------` on are unknown. Flushes every five seconds take 284 MB a
 * year.
 * Crash: lines are appended and fsynced before their commits are removed. A truncated line is written again.
 */

export interface VersionPoint {
  readonly version: number;
  readonly availableAtMs: number;
  /** Distinguishes its commit from one of another history, such as after a restore. Absent in early versions. */
  readonly tag: string | undefined;
}

/** A parsed line. Without a point, versions from here on are unknown. */
export interface LedgerLine {
  readonly version: number;
  readonly point: VersionPoint | undefined;
}

const lineBytes = 45;
const nothingKnown = '--------';
/** The tag of a point without a commit, such as that of an empty table. */
export const noTag = '00000000';
const linePattern = /^(\d{12}),(\d{13}),([0-9a-f]{8}|-{8}),([0-9a-f]{8})\n$/;

/** The underscore hides it from readers of folders and from other engines' VACUUM. */
export const ledgerName = '_versions.csv';

export function ledgerFile(tableDir: string): string {
  return path.join(tableDir, ledgerName);
}

function digits(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

export function tagOf(commitId: string | undefined): string | undefined {
  return commitId === undefined ? undefined : digits(commitId);
}

export function renderLine({ version, point }: LedgerLine): string {
  const tag = point === undefined ? nothingKnown : (point.tag ?? noTag);
  const text = `${String(version).padStart(12, '0')},${String(point?.availableAtMs ?? 0).padStart(13, '0')},${tag}`;
  return `${text},${digits(text)}\n`;
}

/** Parses a line; undefined if damaged. */
function parseLine(text: string): LedgerLine | undefined {
  const [, versionText, availableAtMs, tag, check] = linePattern.exec(text) ?? [];
  if (versionText === undefined || digits(text.slice(0, -10)) !== check) return undefined;
  const version = Number(versionText);
  if (tag === nothingKnown) return { version, point: undefined };
  const point = { version, availableAtMs: Number(availableAtMs), tag: tag === noTag ? undefined : tag };
  return { version, point };
}

const linesTogether = 1024;

export function ledgerError(tableDir: string): AppError {
  return new AppError('log_damaged', `${ledgerFile(tableDir)} is damaged`, {
    hint: 'Restore it from a backup. Without one, remove it: cursors older than the log are then rejected.',
  });
}

/** Reads lines; undefined for damaged ones. */
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

export interface LedgerEnd {
  readonly lines: number;
  readonly last: LedgerLine | undefined;
  /** Whether more follows: an interrupted append or damage. */
  readonly isCutOff: boolean;
}

async function readEnd(file: FileHandle): Promise<LedgerEnd> {
  const { size } = await file.stat();
  // The last line is nearly always intact, and each search reads it.
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
  const file = await unlessMissing(openForReading(ledgerFile(tableDir)), undefined);
  if (file === undefined) return absent;
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

export function findEnd(tableDir: string): Promise<LedgerEnd> {
  return withLedger<LedgerEnd>(tableDir, { lines: 0, last: undefined, isCutOff: false }, readEnd);
}

/** Returns up to ten numbers, from 1, of damaged lines before the last intact one. Repeated lines are valid. */
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

/** Finds a version in the ledger; undefined if it is not covered. Error: `log_damaged`. */
export function findInLedger(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  return withLedger<VersionPoint | undefined>(tableDir, undefined, async (file) => {
    const { lines, last, isCutOff } = await readEnd(file);
    if (version > (last?.version ?? -1)) {
      // An interrupted append is still in the log, which the caller has searched.
      if (isCutOff) throw ledgerError(tableDir);
      return undefined;
    }
    const lineAt = async (index: number): Promise<LedgerLine> => {
      const [line] = await readLines(file, index, 1);
      if (line === undefined) throw ledgerError(tableDir);
      return line;
    };
    let [low, high] = [0, lines];
    // Lines before `low` have a version up to this one. Lines from `high` on have a later one.
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((await lineAt(middle)).version <= version) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? undefined : (await lineAt(low - 1)).point;
  });
}

/** Appends lines durably, replacing an interrupted append. The caller has checked their order. */
export async function appendLines(tableDir: string, lines: readonly LedgerLine[]): Promise<void> {
  if (lines.length === 0) return;
  const { lines: lineCount } = await findEnd(tableDir);
  const file = await openAppendedFile(ledgerFile(tableDir), lineCount * lineBytes, tableFileMode);
  try {
    await file.append(lines.map(renderLine).join(''));
    await file.sync();
  } finally {
    await file.close();
  }
  // A power failure could lose a new file and not the removal of the commits.
  await syncFolder(tableDir);
}

export interface LedgerCopy {
  /** Number of leading lines of the original to keep. */
  readonly lines: number;
  readonly added: readonly LedgerLine[];
}

export async function copyLedger(tableDir: string, folder: string, { lines, added }: LedgerCopy): Promise<void> {
  await copyStart(ledgerFile(tableDir), ledgerFile(folder), lines * lineBytes);
  await appendLines(folder, added);
}
