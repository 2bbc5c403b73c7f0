import { createHash } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { openAppendedFile } from '../../runtime/files/appended-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import type { ObjectStore, OpenObject, Tag } from '../../runtime/store/object-store.ts';
import { tableStore } from './log-files.ts';

/**
 * Newest `available_at` of versions whose commits are trimmed. It keeps `sinceVersion` valid beyond the retention.
 *
 * Fixed-size lines of 45 bytes in ascending order allow a binary search: `VERSION,AVAILABLE_AT_MS,TAG,CHECK`. TAG
 * distinguishes histories with equal versions. CHECK is from the SHA-256 of the text before it. A version without rows
 * has no line. Versions from a line with the tag `--------` on are unknown. Flushes every five seconds take 284 MB a
 * year.
 *
 * A ledger in a folder is one file, which grows in place, as in earlier versions. Other stores rewrite an object to
 * append to it. There, full objects are sealed: `_versions.csv` is followed by `_versions/VERSION.csv`, named after the
 * first version that it covers. So an append rewrites at most 0.7 MB and its own lines, and rivals that start an object
 * at the same end of the ledger choose the same name: one of them creates it.
 * Crash: lines are durable before their commits are removed. In a folder, a truncated line is written again.
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
const laterPrefix = '_versions/';
const laterName = /^_versions\/(\d{12})\.csv$/;
/** Lines of a full object. 385 objects a year at worst. */
const fullLines = 16_384;

/** Reports whether a key of a table's store is one of its ledger. */
export const isLedgerKey = (key: string): boolean => key === ledgerName || laterName.test(key);

export function ledgerFile(tableDir: string): string {
  return path.join(tableDir, ledgerName);
}

function digits(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

export function tagOf(commitId: string | undefined): string | undefined {
  return commitId === undefined ? undefined : digits(commitId);
}

const versionText = (version: number): string => String(version).padStart(12, '0');

function renderLine({ version, point }: LedgerLine): string {
  const tag = point === undefined ? nothingKnown : (point.tag ?? noTag);
  const text = `${versionText(version)},${String(point?.availableAtMs ?? 0).padStart(13, '0')},${tag}`;
  return `${text},${digits(text)}\n`;
}

/** Parses a line; undefined if damaged. */
function parseLine(text: string): LedgerLine | undefined {
  const [, first, availableAtMs, tag, check] = linePattern.exec(text) ?? [];
  if (first === undefined || digits(text.slice(0, -10)) !== check) return undefined;
  const version = Number(first);
  if (tag === nothingKnown) return { version, point: undefined };
  const point = { version, availableAtMs: Number(availableAtMs), tag: tag === noTag ? undefined : tag };
  return { version, point };
}

const linesTogether = 1024;

export function ledgerError(store: ObjectStore, key = ledgerName): AppError {
  return new AppError('log_damaged', `${store.nameOf(key)} is damaged`, {
    hint: 'Restore it from a backup. Without one, remove it: cursors older than the log are then rejected.',
  });
}

/** An object of the ledger. */
interface Segment {
  readonly key: string;
  /** The first version that it covers. */
  readonly from: number;
}

/** Lists the objects of a ledger, the first one also if it is missing. */
async function listSegments(store: ObjectStore): Promise<[Segment, ...Segment[]]> {
  const later = (await store.list(laterPrefix)).flatMap((key) => {
    const from = laterName.exec(key)?.[1];
    return from === undefined ? [] : [{ key, from: Number(from) }];
  });
  return [{ key: ledgerName, from: 0 }, ...later.toSorted((a, b) => a.from - b.from)];
}

const maxAttempts = 10;

/** Runs work on an object, again if an append replaces it meanwhile; `absent` without one. */
async function withSegment<T>(
  store: ObjectStore,
  { key }: Pick<Segment, 'key'>,
  absent: T,
  work: (object: OpenObject) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const object = await store.open(key);
    if (object === undefined) return absent;
    try {
      return await work(object);
    } catch (error) {
      if (!isAppError(error, 'conflict') || attempt === maxAttempts) throw error;
    } finally {
      await object.close();
    }
  }
}

async function readText(object: OpenObject, from: number, count: number): Promise<string> {
  const bytes = await object.read(from * lineBytes, count * lineBytes);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
}

const parseLineOf = (text: string, n: number): LedgerLine | undefined =>
  parseLine(text.slice(n * lineBytes, (n + 1) * lineBytes));

/** Reads lines; undefined for damaged ones. */
async function readLines(object: OpenObject, from: number, count: number): Promise<(LedgerLine | undefined)[]> {
  const text = await readText(object, from, count);
  return Array.from({ length: Math.floor(text.length / lineBytes) }, (_, n) => parseLineOf(text, n));
}

interface SegmentEnd {
  /** Number of lines up to the last intact one. */
  readonly lines: number;
  readonly last: LedgerLine | undefined;
  /** Whether more follows: an interrupted append or damage. */
  readonly isCutOff: boolean;
}

const noLines: SegmentEnd = { lines: 0, last: undefined, isCutOff: false };

async function readEnd(object: OpenObject): Promise<SegmentEnd> {
  const { sizeBytes } = object;
  // The last line is nearly always intact, and each search reads it.
  let together = 1;
  for (let to = Math.floor(sizeBytes / lineBytes), from; to > 0; to = from) {
    from = Math.max(0, to - together);
    together = linesTogether;
    const read = await readLines(object, from, to - from);
    const at = read.findLastIndex((line) => line !== undefined);
    const lines = from + at + 1;
    if (at >= 0) return { lines, last: read[at], isCutOff: sizeBytes > lines * lineBytes };
  }
  return { ...noLines, isCutOff: sizeBytes > 0 };
}

/** The end of a ledger: that of its last object. */
export interface LedgerEnd extends SegmentEnd {
  readonly key: string;
  readonly tag: Tag | 'absent';
}

/** Finds the end of a ledger. Error: `log_damaged` for a symbolic link. */
export async function findEnd(store: ObjectStore): Promise<LedgerEnd> {
  const segments = await listSegments(store);
  const { key } = segments.at(-1) ?? segments[0];
  // The tag first: an append to later bytes is then a conflict.
  const tag = (await store.findTag(key)) ?? 'absent';
  const end = await withSegment<SegmentEnd | undefined>(store, { key }, undefined, readEnd);
  // A symbolic link is not an object. An append would truncate its file.
  if (end === undefined && tag !== 'absent') throw ledgerError(store, key);
  return { ...(end ?? noLines), key, tag };
}

/** Finds damaged lines of an object after the line `before`. Returns their indexes, the number of lines, and the last. */
async function findBroken(
  object: OpenObject,
  { from: covers }: Segment,
  before: LedgerLine | undefined,
  isLast: boolean,
) {
  const lines = isLast ? (await readEnd(object)).lines : Math.ceil(object.sizeBytes / lineBytes);
  const broken: number[] = [];
  let previous = before;
  for (let from = 0; from < lines && broken.length < 10; from += linesTogether) {
    const read = await readLines(object, from, Math.min(linesTogether, lines - from));
    for (let n = 0; n < Math.min(linesTogether, lines - from); n += 1) {
      const line = read[n];
      const isFirst = from + n === 0 && covers > 0;
      const isNext =
        line !== undefined && (line.version > (previous?.version ?? -1) || isDeepStrictEqual(line, previous));
      // An object begins where the previous one ends.
      const isAdjacent = !isFirst || (line?.version === covers && previous?.version === covers - 1);
      if (!isNext || !isAdjacent) broken.push(from + n);
      previous = line ?? previous;
    }
  }
  return { lines, broken, last: previous };
}

/** Returns up to ten numbers, from 1, of damaged lines before the last intact one. Repeated lines are valid. */
export async function findBrokenLines(store: ObjectStore): Promise<number[]> {
  const segments = await listSegments(store);
  const numbers: number[] = [];
  let before: LedgerLine | undefined;
  let count = 0;
  for (const segment of segments) {
    const found = await withSegment(store, segment, { lines: 0, broken: [], last: before }, (object) =>
      findBroken(object, segment, before, segment === segments.at(-1)),
    );
    numbers.push(...found.broken.map((index) => count + index + 1));
    count += found.lines;
    before = found.last;
  }
  return numbers.slice(0, 10);
}

/** Finds a version in the ledger; undefined if it is not covered. Error: `log_damaged`. */
export async function findInLedger(store: ObjectStore, version: number): Promise<VersionPoint | undefined> {
  const segments = await listSegments(store);
  const segment = segments.findLast(({ from }) => from <= version) ?? segments[0];
  const isLast = segment === segments.at(-1);
  const error = ledgerError(store, segment.key);
  return await withSegment<VersionPoint | undefined>(store, segment, undefined, async (object) => {
    const { lines, last, isCutOff } = await readEnd(object);
    if (version > (last?.version ?? -1)) {
      // An interrupted append is still in the log, which the caller has searched.
      if (isCutOff || !isLast) throw error;
      return undefined;
    }
    let [block, text] = [-1, ''];
    const lineAt = async (index: number): Promise<LedgerLine> => {
      const from = index - (index % linesTogether);
      if (from !== block) [block, text] = [from, await readText(object, from, linesTogether)];
      const line = parseLineOf(text, index - from);
      if (line === undefined) throw error;
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

const renderLines = (lines: readonly LedgerLine[]): Buffer => Buffer.from(lines.map(renderLine).join(''));

/**
 * Appends lines durably at an end of the ledger, replacing an interrupted append. The caller has checked their order.
 * Returns false if the ledger has another end now.
 */
export async function appendLines(store: ObjectStore, lines: readonly LedgerLine[], end?: LedgerEnd): Promise<boolean> {
  const [first] = lines;
  if (first === undefined) return true;
  const { key, tag, lines: kept, last, isCutOff } = end ?? (await findEnd(store));
  const isFull = store.folder === undefined && kept >= fullLines && !isCutOff;
  if (!isFull) return (await store.append(key, renderLines(lines), kept * lineBytes, tag)) !== 'conflict';
  const version = (last?.version ?? -1) + 1;
  // A search reads one object, so the current point is repeated.
  const start = first.version > version ? [{ version, point: last?.point }] : [];
  const next = `${laterPrefix}${versionText(version)}.csv`;
  return (await store.append(next, renderLines([...start, ...lines]), 0, 'absent')) !== 'conflict';
}

export interface LedgerCopy {
  /** The last object of the original to copy, and the number of its leading lines to keep. */
  readonly key: string;
  readonly lines: number;
  readonly added: readonly LedgerLine[];
}

const copiedBytes = 1024 * 1024;

/** Copies a ledger into a new file of a local folder, and appends lines. */
export async function copyLedger(store: ObjectStore, folder: string, { key, lines, added }: LedgerCopy): Promise<void> {
  const segments = await listSegments(store);
  let kept = 0;
  for (const segment of segments.slice(0, segments.findIndex((one) => one.key === key) + 1))
    kept += await withSegment(store, segment, 0, async (object) => {
      const bytes = segment.key === key ? lines * lineBytes : object.sizeBytes;
      const file = await openAppendedFile(ledgerFile(folder), kept, tableFileMode);
      try {
        for (let from = 0; from < bytes; from += copiedBytes)
          await file.append(await object.read(from, Math.min(copiedBytes, bytes - from)));
      } finally {
        await file.close();
      }
      return bytes;
    });
  await appendLines(tableStore(folder), added);
}
