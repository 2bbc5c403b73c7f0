import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { findTextFile } from '../../runtime/files/durable-file.ts';
import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { findLakeState, type LakeState, type Restamp } from './lake-state.ts';
import { listLog, readCommit } from './log-files.ts';
import {
  appendLines,
  findEnd,
  findInLedger,
  ledgerError,
  markOf,
  type LedgerCopy,
  type LedgerEnd,
  type LedgerLine,
  type VersionPoint,
} from './version-ledger.ts';

/**
 * Where versions stand in the order of rows. Rows that came after version V are those with a later `available_at` than
 * the point of V, in any later version, wherever seals and rewrites have put them.
 */

/** One old `available_at` and the one that a repair of the clock has given its rows, Unix milliseconds. */
export type RestampStep = readonly [oldMs: number, newMs: number];

/** The folder, below the table's, of what repairs of the clock have changed. */
export const restampsFolder = '_restamps';

/** A new file for the steps of a repair, relative to the table's folder. */
export const newStepsFile = (): string => `${restampsFolder}/${randomUUID()}.json`;

/** Renders the steps of a restamp, in growing order. */
export function renderSteps(steps: readonly RestampStep[]): string {
  return renderChecked({ steps });
}

/** Reads the steps of a repair. Errors: `log_damaged`. */
export async function readSteps(tableDir: string, name: string): Promise<readonly RestampStep[]> {
  const file = path.join(tableDir, name);
  const hint = `Put it back from a backup: exports with sinceVersion from before that repair need it.`;
  const text = await findTextFile(file);
  if (text === undefined) throw new AppError('log_damaged', `${file} is gone`, { hint });
  try {
    return parseChecked(text)['steps'] as readonly RestampStep[];
  } catch (error) {
    throw new AppError('log_damaged', `${file} is damaged`, { cause: error, hint });
  }
}

/**
 * The new place of a time: that of the last step at or before it, and none later than what the repair has left. Before
 * the first step lies what has none of the rows that were moved: it stays before all of them, however far they have gone
 * back, and after every row that had passed.
 */
function restampTime(atMs: number, steps: readonly RestampStep[], toMs: number): number {
  const step = steps.findLast(([oldMs]) => oldMs <= atMs);
  const beforeAllMs = (steps[0]?.[1] ?? Infinity) - 1;
  return Math.min(step?.[1] ?? Math.min(atMs, beforeAllMs), toMs);
}

/** The point as the repairs of the clock that came after it have left it. */
async function followRestamps(
  tableDir: string,
  point: VersionPoint,
  restamps: readonly Restamp[],
): Promise<VersionPoint> {
  let { availableAtMs } = point;
  for (const { version, toMs, upToMs = Infinity, steps } of restamps) {
    // What came while the repair was under way is later than all that it has moved.
    if (version <= point.version || availableAtMs > upToMs) continue;
    availableAtMs = restampTime(availableAtMs, steps === undefined ? [] : await readSteps(tableDir, steps), toMs);
  }
  return { ...point, availableAtMs };
}

/** The point of a version whose own part of its commit is this. */
export function toPoint(version: number, { availableAtMs, availableBy }: LakeState): VersionPoint {
  return { version, availableAtMs, mark: markOf(availableBy) };
}

/** What a commit says; undefined when it is another engine's, which brings no rows of ours. */
async function readPoint(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  const { actions } = await readCommit(tableDir, version);
  const lake = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo);
  return lake === undefined ? undefined : toPoint(version, lake);
}

async function findInLog(tableDir: string, version: number): Promise<VersionPoint | undefined> {
  for (let own = version; own >= 0; own -= 1) {
    try {
      const point = await readPoint(tableDir, own);
      if (point !== undefined) return { ...point, version };
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return undefined;
      throw error;
    }
  }
  return undefined;
}

/**
 * The point of a version; undefined when nobody knows it any more, because it is from before the ledger began.
 * `restamps`: those of the version that is read with it. Errors: `log_damaged`.
 */
export async function findPoint(
  tableDir: string,
  version: number,
  restamps: readonly Restamp[] = [],
): Promise<VersionPoint | undefined> {
  // A commit that is trimmed between the two looks is in the ledger by then.
  const found = (await findInLog(tableDir, version)) ?? (await findInLedger(tableDir, version));
  return found === undefined ? undefined : await followRestamps(tableDir, { ...found, version }, restamps);
}

/** Commits that are read at a time. */
const commitsTogether = 64;

/** What each commit says, as a line; undefined: it is another engine's, and leaves everything as it was. */
async function readSaid(tableDir: string, versions: readonly number[]): Promise<(LedgerLine | undefined)[]> {
  const read = async (version: number): Promise<LedgerLine | undefined> => {
    try {
      const point = await readPoint(tableDir, version);
      return point === undefined ? undefined : { version, point };
    } catch (error) {
      // What is damaged goes with the others; nothing is known of it from then on.
      if (!isAppError(error, 'log_damaged')) throw error;
      return { version, point: undefined };
    }
  };
  const said: (LedgerLine | undefined)[] = [];
  for (let from = 0; from < versions.length; from += commitsTogether)
    said.push(...(await Promise.all(versions.slice(from, from + commitsTogether).map(read))));
  return said;
}

function saysTheSame({ point: a }: LedgerLine, { point: b }: LedgerLine): boolean {
  return a?.availableAtMs === b?.availableAtMs && a?.mark === b?.mark;
}

/** The lines that say something new, and the last, so that the ledger says how far it reaches. */
function leaveOutRepeats(
  versions: readonly number[],
  said: readonly (LedgerLine | undefined)[],
  last: LedgerLine | undefined,
): LedgerLine[] {
  const lines: LedgerLine[] = [];
  let inForce = last;
  for (const [n, version] of versions.entries()) {
    const line = said[n] ?? { version, point: inForce?.point };
    const isNew = inForce === undefined || !saysTheSame(line, inForce);
    if (isNew || n === versions.length - 1) lines.push(line);
    inForce = line;
  }
  return lines;
}

/**
 * The lines for commits that follow what a ledger with this end covers. A version that brought no rows has one only
 * where it is the last. Errors: `log_damaged` where the ledger has lost what only it still said.
 */
async function listNewLines(
  tableDir: string,
  { last, isCutOff }: LedgerEnd,
  versions: readonly number[],
): Promise<LedgerLine[]> {
  const covered = last?.version ?? -1;
  const newer = versions.filter((version) => version > covered);
  const [next = covered + 1] = newer;
  const isGap = next > covered + 1;
  if (isGap && isCutOff) throw ledgerError(tableDir);
  const gap = { version: covered + 1, point: undefined };
  const lines = leaveOutRepeats(newer, await readSaid(tableDir, newer), isGap ? gap : last);
  return isGap ? [gap, ...lines] : lines;
}

/** Writes down what commits say that are about to be trimmed; `versions` in growing order. */
export async function recordVersions(tableDir: string, versions: readonly number[]): Promise<void> {
  await appendLines(tableDir, await listNewLines(tableDir, await findEnd(tableDir), versions));
}

/**
 * The ledger as it would be if every commit up to a version were trimmed. Errors: those of `recordVersions`; ENOENT where
 * a commit was trimmed meanwhile.
 */
export async function listUntrimmed(tableDir: string, upTo: number): Promise<LedgerCopy> {
  const { commits } = await listLog(tableDir);
  const end = await findEnd(tableDir);
  const added = await listNewLines(
    tableDir,
    end,
    commits.filter((version) => version <= upTo),
  );
  return { lines: end.lines, added };
}
