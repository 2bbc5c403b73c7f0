import { createHash } from 'node:crypto';
import { copyFile, open, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../../runtime/errors.ts';
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
 * Crash: lines are appended and fsynced before their commits go; a line that is cut off is written again.
 */

/** Where a version stands in the order of rows. */
export interface VersionPoint {
  readonly version: number;
  /** The newest `available_at` that the lake had given out, Unix milliseconds. */
  readonly availableAtMs: number;
  /**
   * Tells the commit that gave that time from those of another history, such as what a lake had committed before it was
   * restored from an older backup; undefined: a version of before 0.3 made it.
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
/** The mark of a point that has none. */
const unmarked = '00000000';
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

async function readLine(file: FileHandle, index: number): Promise<LedgerLine | undefined> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(lineBytes), 0, lineBytes, index * lineBytes);
  return bytesRead === lineBytes ? parseLine(buffer.toString('latin1')) : undefined;
}

/** The whole lines at the beginning of the file: how many there are, and the last. */
async function findEnd(file: FileHandle): Promise<{ readonly lines: number; readonly last: LedgerLine | undefined }> {
  for (let lines = Math.floor((await file.stat()).size / lineBytes); lines > 0; lines -= 1) {
    const last = await readLine(file, lines - 1);
    if (last !== undefined) return { lines, last };
  }
  return { lines: 0, last: undefined };
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

/** The last version that the ledger covers, with what it says of it; undefined: it covers none. */
export function findLastLine(tableDir: string): Promise<LedgerLine | undefined> {
  return withLedger(tableDir, undefined, async (file) => (await findEnd(file)).last);
}

/**
 * What the ledger says of a version; undefined when it does not cover it, says that nothing is known, or is damaged
 * there.
 */
export function findInLedger(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  return withLedger<VersionPoint | undefined>(tableDir, undefined, async (file) => {
    const { lines, last } = await findEnd(file);
    if (last === undefined || version > last.version) return undefined;
    let [low, high] = [0, lines];
    // The last line whose version is not above: every line before `low` is not, every one from `high` on is.
    while (low < high) {
      const middle = (low + high) >>> 1;
      const line = await readLine(file, middle);
      if (line === undefined) return undefined;
      if (line.version <= version) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? undefined : (await readLine(file, low - 1))?.point;
  });
}

/** Appends lines durably, in place of what a crash has cut off. The caller has seen that they follow the last one. */
export async function appendLines(tableDir: string, lines: readonly LedgerLine[]): Promise<void> {
  if (lines.length === 0) return;
  const file = await open(ledgerFile(tableDir), 'a+', tableFileMode);
  try {
    const { lines: whole } = await findEnd(file);
    await file.truncate(whole * lineBytes);
    await file.appendFile(lines.map(renderLine).join(''));
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Copies the ledger of a table into another folder, with further lines; none there is replaced. */
export async function copyLedger(tableDir: string, folder: string, lines: readonly LedgerLine[]): Promise<void> {
  await copyFile(ledgerFile(tableDir), ledgerFile(folder)).catch((error: unknown) => {
    if (!isSystemError(error, 'ENOENT')) throw error;
  });
  await appendLines(folder, lines);
}
