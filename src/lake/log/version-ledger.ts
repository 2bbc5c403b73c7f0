import { copyStart, openAppendedFile } from '../../runtime/files/appended-file.ts';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { AppError, unlessMissing } from '../../runtime/errors.ts';
import { syncFolder } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { openForReading, type FileHandle } from '../../runtime/files/open-file.ts';

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

/** The position of a version in the order of rows. */
export interface VersionPoint {
  readonly version: number;
  /** The newest `available_at` assigned, Unix ms. */
  readonly availableAtMs: number;
  /**
   * Distinguishes the commit that assigned it from those of another history, such as commits after the backup from
   * which a lake was restored; undefined for versions of the service that wrote none.
   */
  readonly mark: string | undefined;
}

/** The content of a line; without a point, nothing is known from that version on. */
export interface LedgerLine {
  readonly version: number;
  readonly point: VersionPoint | undefined;
}

const lineBytes = 45;
const nothingKnown = '--------';
/** The mark of a point without one, such as that of a table without rows. */
export const unmarked = '00000000';
const linePattern = /^(\d{12}),(\d{13}),([0-9a-f]{8}|-{8}),([0-9a-f]{8})\n$/;

/** The underscore hides it from readers of folders and other engines' clean-up. */
export const ledgerName = '_versions.csv';

export function ledgerFile(tableDir: string): string {
  return path.join(tableDir, ledgerName);
}

function digits(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

/** Returns the mark of a commit. */
export function markOf(commitId: string | undefined): string | undefined {
  return commitId === undefined ? undefined : digits(commitId);
}

export function renderLine({ version, point }: LedgerLine): string {
  const mark = point === undefined ? nothingKnown : (point.mark ?? unmarked);
  const text = `${String(version).padStart(12, '0')},${String(point?.availableAtMs ?? 0).padStart(13, '0')},${mark}`;
  return `${text},${digits(text)}\n`;
}

/** Parses a line; undefined if it is damaged. */
function parseLine(text: string): LedgerLine | undefined {
  const [, versionText, availableAtMs, mark, check] = linePattern.exec(text) ?? [];
  if (versionText === undefined || digits(text.slice(0, -10)) !== check) return undefined;
  const version = Number(versionText);
  if (mark === nothingKnown) return { version, point: undefined };
  const point = { version, availableAtMs: Number(availableAtMs), mark: mark === unmarked ? undefined : mark };
  return { version, point };
}

const linesTogether = 1024;

export function ledgerError(tableDir: string): AppError {
  return new AppError('log_damaged', `${ledgerFile(tableDir)} is damaged`, {
    hint: 'Put it back from a backup; or remove it, when there is none: what is asked for since an older version than the log has is refused then.',
  });
}

/** Reads some lines; undefined stands for a damaged one. */
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

/** The intact part of the ledger. */
export interface LedgerEnd {
  /** Lines up to the last intact one. */
  readonly lines: number;
  /** The last intact line, if any. */
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

/** Finds the intact part of the ledger; a missing ledger is empty. */
export function findEnd(tableDir: string): Promise<LedgerEnd> {
  return withLedger<LedgerEnd>(tableDir, { lines: 0, last: undefined, isCutOff: false }, readEnd);
}

/**
 * Returns the numbers, from 1, of damaged lines before the last intact one, at most ten. A line may be repeated: of two
 * compactors, one stopped while trimming and without its lease, each appends it.
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
 * Finds a version in the ledger; undefined if it is not covered or unknown. Error: `log_damaged` if that part is
 * damaged.
 */
export function findInLedger(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  return withLedger<VersionPoint | undefined>(tableDir, undefined, async (file) => {
    const { lines, last, isCutOff } = await readEnd(file);
    if (version > (last?.version ?? -1)) {
      // An interrupted append is still in the log, where the caller has searched.
      if (isCutOff) throw ledgerError(tableDir);
      return undefined;
    }
    const lineAt = async (index: number): Promise<LedgerLine> => {
      const [line] = await readLines(file, index, 1);
      if (line === undefined) throw ledgerError(tableDir);
      return line;
    };
    let [low, high] = [0, lines];
    // Every line before `low` has a version up to this one; every one from `high` on has a later one.
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((await lineAt(middle)).version <= version) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? undefined : (await lineAt(low - 1)).point;
  });
}

/** Appends lines durably, replacing an interrupted append. The caller has checked that they follow the last one. */
export async function appendLines(tableDir: string, lines: readonly LedgerLine[]): Promise<void> {
  if (lines.length === 0) return;
  const { lines: whole } = await findEnd(tableDir);
  const file = await openAppendedFile(ledgerFile(tableDir), whole * lineBytes, tableFileMode);
  try {
    await file.append(lines.map(renderLine).join(''));
    await file.sync();
  } finally {
    await file.close();
  }
  // A power cut could lose a new file and not the removal of the commits.
  await syncFolder(tableDir);
}

/** The content of a copy. */
export interface LedgerCopy {
  /** Number of leading lines of the original; later ones are left out. */
  readonly lines: number;
  /** Lines that follow them. */
  readonly added: readonly LedgerLine[];
}

/** Copies the ledger of a table into another folder, with further lines. */
export async function copyLedger(tableDir: string, folder: string, { lines, added }: LedgerCopy): Promise<void> {
  await copyStart(ledgerFile(tableDir), ledgerFile(folder), lines * lineBytes);
  await appendLines(folder, added);
}
