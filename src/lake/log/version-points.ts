import { randomUUID } from 'node:crypto';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { findText } from '../../runtime/store/object-store.ts';
import { listOf } from '../../runtime/store/shape.ts';
import { parseChecksummed, renderChecksummed } from '../../runtime/files/checksummed-json.ts';
import { type LakeState, type Restamp, findStateOf } from './lake-state.ts';
import { listLog, readCommit, findCommit, tableStore } from './log-files.ts';
import {
  appendLines,
  findEnd,
  findInLedger,
  ledgerError,
  ledgerName,
  tagOf,
  type LedgerCopy,
  type LedgerEnd,
  type LedgerLine,
  type VersionPoint,
} from './version-ledger.ts';

/** Rows newer than a version have a later `available_at` than its point, in any later version and file. */

export type RestampStep = readonly [oldMs: number, newMs: number];

const isSteps = listOf(
  (step): step is RestampStep => Array.isArray(step) && step.length === 2 && step.every(Number.isFinite),
);

/** Folder of the steps of clock repairs, in the table's folder. */
export const restampsFolder = '_restamps';

export const newStepsFile = (): string => `${restampsFolder}/${randomUUID()}.json`;

export function renderSteps(steps: readonly RestampStep[]): string {
  return renderChecksummed({ steps });
}

export async function readSteps(tableDir: string, name: string): Promise<readonly RestampStep[]> {
  const store = tableStore(tableDir);
  const file = store.nameOf(name);
  const hint = 'Restore it from a backup: exports with a sinceVersion from before that repair need it.';
  const text = await findText(store, name);
  if (text === undefined) throw new AppError('log_damaged', `${file} is missing`, { hint });
  try {
    const { steps } = parseChecksummed(text);
    if (isSteps(steps)) return steps;
    throw new Error('it has no steps');
  } catch (error) {
    throw new AppError('log_damaged', `${file} is damaged`, { cause: error, hint });
  }
}

/** Maps a time by the last step up to it, and to at most the repair's newest time. */
function restampTime(atMs: number, steps: readonly RestampStep[], toMs: number): number {
  const step = steps.findLast(([oldMs]) => oldMs <= atMs);
  const beforeAllMs = (steps[0]?.[1] ?? Infinity) - 1;
  return Math.min(step?.[1] ?? Math.min(atMs, beforeAllMs), toMs);
}

async function followRestamps(
  tableDir: string,
  point: VersionPoint,
  restamps: readonly Restamp[],
): Promise<VersionPoint> {
  let { availableAtMs } = point;
  for (const { version, toMs, upToMs = Infinity, steps } of restamps) {
    // Rows that were added during the repair are later than all that it moved.
    if (version <= point.version || availableAtMs > upToMs) continue;
    availableAtMs = restampTime(availableAtMs, steps === undefined ? [] : await readSteps(tableDir, steps), toMs);
  }
  return { ...point, availableAtMs };
}

export function toPoint(version: number, { availableAtMs, availableBy }: LakeState): VersionPoint {
  return { version, availableAtMs, tag: tagOf(availableBy) };
}

async function readPoint(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  const lake = findStateOf((await readCommit(tableDir, version)).actions);
  return lake === undefined ? undefined : toPoint(version, lake);
}

async function findInLog(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  for (let own = version; own >= 0; own -= 1) {
    const commit = await findCommit(tableDir, own);
    if (commit === undefined) return undefined;
    const lake = findStateOf(commit.actions);
    if (lake !== undefined) return toPoint(version, lake);
  }
  return undefined;
}

/** Finds the point of a version, after `restamps`; undefined if it is older than the ledger. Error: `log_damaged`. */
export async function findPoint(
  tableDir: string,
  version: number,
  restamps: readonly Restamp[] = [],
): Promise<VersionPoint | undefined> {
  // A commit that is trimmed between the two reads is in the ledger by then.
  const found = (await findInLog(tableDir, version)) ?? (await findInLedger(tableStore(tableDir), version));
  return found === undefined ? undefined : await followRestamps(tableDir, { ...found, version }, restamps);
}

const commitsTogether = 64;

/** Returns a line per commit; undefined for a foreign one, which has no rows. */
async function readLines(tableDir: string, versions: readonly number[]): Promise<(LedgerLine | undefined)[]> {
  const read = async (version: number): Promise<LedgerLine | undefined> => {
    try {
      const point = await readPoint(tableDir, version);
      return point === undefined ? undefined : { version, point };
    } catch (error) {
      // A damaged commit is trimmed too. Later versions are then unknown.
      if (!isAppError(error, 'log_damaged')) throw error;
      return { version, point: undefined };
    }
  };
  const ledgerLines: (LedgerLine | undefined)[] = [];
  for (let from = 0; from < versions.length; from += commitsTogether)
    ledgerLines.push(...(await Promise.all(versions.slice(from, from + commitsTogether).map(read))));
  return ledgerLines;
}

function isSamePoint({ point: a }: LedgerLine, { point: b }: LedgerLine): boolean {
  return a?.availableAtMs === b?.availableAtMs && a?.tag === b?.tag;
}

/** Keeps the lines that differ from the previous one, and the last, which marks the end. */
function dropRepeats(
  versions: readonly number[],
  ledgerLines: readonly (LedgerLine | undefined)[],
  last: LedgerLine | undefined,
): LedgerLine[] {
  const lines: LedgerLine[] = [];
  let inForce = last;
  for (const [n, version] of versions.entries()) {
    const line = ledgerLines[n] ?? { version, point: inForce?.point };
    const isNew = inForce === undefined || !isSamePoint(line, inForce);
    if (isNew || n === versions.length - 1) lines.push(line);
    inForce = line;
  }
  return lines;
}

/** Returns the lines of commits after the ledger's end. Error: `log_damaged` if versions are missing between them. */
async function listNewLines(
  tableDir: string,
  { key, last, isCutOff }: LedgerEnd,
  versions: readonly number[],
): Promise<LedgerLine[]> {
  const covered = last?.version ?? -1;
  const newer = versions.filter((version) => version > covered);
  const [next = covered + 1] = newer;
  const isGap = next > covered + 1;
  if (isGap && isCutOff) throw ledgerError(tableStore(tableDir), key);
  const gap = { version: covered + 1, point: undefined };
  const lines = dropRepeats(newer, await readLines(tableDir, newer), isGap ? gap : last);
  return isGap ? [gap, ...lines] : lines;
}

const maxAttempts = 10;

/** Appends the points of commits that are about to be trimmed; `versions` ascend. */
export async function recordVersions(tableDir: string, versions: readonly number[]): Promise<void> {
  const store = tableStore(tableDir);
  for (let attempt = 1; attempt <= maxAttempts; attempt += 1) {
    const end = await findEnd(store);
    if (await appendLines(store, await listNewLines(tableDir, end, versions), end)) return;
  }
  throw new AppError('commit_conflict', `cannot append to ${store.nameOf(ledgerName)} after ${maxAttempts} attempts`, {
    hint: 'Check that no other service writes to the lake. The work is repeated.',
  });
}

/** Returns the ledger as if every commit up to a version were trimmed. Error: ENOENT after a concurrent trim. */
export async function listUntrimmed(tableDir: string, upTo: number): Promise<LedgerCopy> {
  const { commits } = await listLog(tableDir);
  const end = await findEnd(tableStore(tableDir));
  const added = await listNewLines(
    tableDir,
    end,
    commits.filter((version) => version <= upTo),
  );
  return { key: end.key, lines: end.lines, added };
}
