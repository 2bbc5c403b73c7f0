/**
 * The age limits of rows, and the day on which they are applied.
 *
 * A clock that is wrong must not remove rows. So the day is never later than the machine's clock, and than the newest
 * day with sealed rows plus the time that this process runs. It advances by one per half a day of that time, from the
 * recorded day. Without one, it begins at the time of the newest rows. A process that was stopped for days catches up
 * slowly. `tributary lake expire` confirms the machine's clock at once.
 */
import type { Dataset } from '../../datasets/dataset.ts';
import { parsePartitionPath } from '../../datasets/partition.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import {
  createCutoffs,
  dayOf,
  hasAgeLimits,
  kindsOf,
  msOfDay,
  type AgeRules,
  type Cutoffs,
} from '../../lake/expiry/age-rules.ts';
import { listDue, type ExpiredRows } from '../../lake/expiry/expire-files.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';

const dayMs = 86_400_000;
/** A larger lag of the day behind the clock is a warning, days: a lake may be without events for a weekend. */
const usualLagDays = 3;
/** Rows that prove a day: this number, or this share of all. A few events have wrong times. */
const proof = { rows: 100, share: 0.01 } as const;
/** Running time after which the day may advance by one, ms: a process that restarts often does not move it. */
const advanceMs = dayMs / 2;

const addDays = (day: string, days: number): string => dayOf(msOfDay(day) + days * dayMs);
const least = (...days: readonly string[]): string => days.toSorted()[0] ?? '';

function dateOf({ publishedPath, path, maxValues: { event_time: last } }: DataFile): string | undefined {
  const { date } = parsePartitionPath(publishedPath ?? path) ?? {};
  return date ?? (typeof last === 'string' ? last.slice(0, 10) : undefined);
}

/** Returns the newest day up to `wall` that enough sealed rows of `allRows` prove; undefined without rows. */
export function findProvenDay(files: readonly DataFile[], wall: string, allRows: number): string | undefined {
  const byDate = new Map<string, DataFile[]>();
  for (const file of files) {
    const date = file.young ? undefined : dateOf(file);
    if (date === undefined || date > wall) continue;
    const group = byDate.get(date);
    if (group === undefined) byDate.set(date, [file]);
    else group.push(file);
  }
  let sum = 0;
  for (const [date, group] of [...byDate].toSorted(([a], [b]) => (a < b ? 1 : -1))) {
    sum += group.reduce((rows, { numRecords = 0 }) => rows + numRecords, 0);
    if (sum > 0 && sum >= Math.min(proof.rows, allRows * proof.share)) return date;
  }
  return undefined;
}

/** A day, and when it was seen by the monotonic clock. */
interface SeenDay {
  readonly day: string;
  readonly atMs: number;
}

interface DayDependencies {
  readonly clock: Clock;
  /** The day that the lake's log has recorded. */
  readonly recorded: () => string | undefined;
  /** When the newest rows were committed as of opening, Unix ms; 0: never. */
  readonly newestAtMs: number;
  /** A monotonic clock. */
  readonly uptimeMs?: () => number;
}

/** Creates the search of the day on which age limits are applied; undefined without sealed rows. */
export function createReferenceDay({
  clock,
  recorded,
  newestAtMs,
  uptimeMs = () => performance.now(),
}: DayDependencies) {
  const opened = { ms: newestAtMs === 0 ? clock.nowMs() : newestAtMs, atMs: uptimeMs() };
  let proven: SeenDay | undefined;
  let anchor: SeenDay | undefined;
  /** The day that was recorded or returned before. */
  let known: string | undefined;
  const since = ({ day, atMs }: SeenDay): string => addDays(day, Math.floor((uptimeMs() - atMs) / dayMs));
  return (files: readonly DataFile[], allRows: number): { readonly day: string; readonly wall: string } | undefined => {
    const atMs = uptimeMs();
    const wall = dayOf(clock.nowMs());
    const newest = findProvenDay(files, wall, allRows);
    if (newest === undefined) return undefined;
    if (proven === undefined || newest > since(proven)) proven = { day: newest, atMs };
    const stored = recorded();
    if (known !== undefined && stored !== undefined && stored > known) {
      // An operator has confirmed the clock.
      proven = { day: stored, atMs };
      anchor = { day: stored, atMs };
    }
    // Clients choose the times of rows: they prove no day after the newest commit and the running time since.
    anchor ??= { day: stored ?? least(wall, since(proven), dayOf(opened.ms + atMs - opened.atMs)), atMs };
    const day = least(wall, since(proven), addDays(anchor.day, atMs - anchor.atMs < advanceMs ? 0 : 1));
    if (day > anchor.day) anchor = { day, atMs };
    known = stored !== undefined && stored > day ? stored : day;
    return { day, wall };
  };
}

interface Described {
  readonly dataset: Dataset;
  readonly table: Table;
}

function describeHeld(day: string, wall: string, files: number): Problem {
  return {
    code: 'expiry_held',
    message: `the clock says ${wall}, but rows and the running time of the service confirm ${day} only: age limits are applied as of ${day}, and ${files} files with older rows stay`,
    action:
      "Check the machine's clock. If it is right, run 'tributary lake expire', which applies the limits as of the clock's day.",
  };
}

export type AgeLimits = ReturnType<typeof createAgeLimits>;

/** Creates the age limits of a compactor. `readRules`: undefined without any. */
export function createAgeLimits(
  { primaryTable, clock }: { readonly primaryTable: Table; readonly clock: Clock },
  readRules: (() => Promise<AgeRules>) | undefined,
  everyMs: number,
) {
  const findDay = createReferenceDay({
    clock,
    recorded: () => primaryTable.lake().expiryDay,
    newestAtMs: primaryTable.lake().availableAtMs,
  });
  /** Undefined without limits, and if they cannot be read: then nothing is removed. */
  let rules: AgeRules | undefined;
  let isActive = false;
  let key = '';
  let day: string | undefined;
  let held: readonly Problem[] = [];
  let nextMs = 0;
  const removed = { rows: 0, filesRemoved: 0, filesRewritten: 0 };

  async function read(): Promise<void> {
    rules = undefined;
    const found = await readRules?.();
    if (found === undefined) return;
    isActive = hasAgeLimits(found);
    rules = isActive ? found : undefined;
    key = JSON.stringify(found);
  }

  /** Returns the first kept dates of a table now, and a key that changes with them; undefined without limits. */
  function find(dataset: Dataset): { readonly cutoffs: Cutoffs; readonly key: string } | undefined {
    if (rules === undefined || day === undefined) return undefined;
    return { cutoffs: createCutoffs(rules, day, kindsOf(dataset)), key: `${day} ${key}` };
  }

  return {
    find,
    /** Reads the rules and the day, and records the day. Errors: those of the rules and of the commit. */
    async refresh(tables: readonly Described[]): Promise<void> {
      if (readRules === undefined || performance.now() < nextMs) return;
      nextMs = performance.now() + everyMs;
      await read();
      const allRows = tables.reduce((sum, { table }) => sum + table.state().size.rows, 0);
      const files = tables.flatMap(({ table }) => table.snapshot().files);
      const reached = rules && findDay(files, allRows);
      day = reached?.day;
      held = [];
      if (rules === undefined || reached === undefined) return;
      const stored = (): string => primaryTable.lake().expiryDay ?? '';
      if (reached.day > stored())
        await primaryTable.commit(() => ({ cause: 'expire', actions: [], expiryDay: reached.day }));
      if (msOfDay(reached.wall) - msOfDay(reached.day) <= usualLagDays * dayMs) return;
      const byClock = rules;
      const due = tables.flatMap(({ dataset, table }) =>
        listDue(table.snapshot().files, createCutoffs(byClock, reached.wall, kindsOf(dataset))),
      );
      if (due.length > 0) held = [describeHeld(reached.day, reached.wall, due.length)];
    },
    /** Reads the rules, and reports whether the dates of a key still hold. Errors: those of the rules. */
    async holds(dataset: Dataset, given: string): Promise<boolean> {
      await read();
      return find(dataset)?.key === given;
    },
    isActive: () => isActive,
    note({ rows, filesRemoved, filesRewritten }: ExpiredRows): void {
      removed.rows += rows;
      removed.filesRemoved += filesRemoved;
      removed.filesRewritten += filesRewritten;
    },
    notices: () => held,
    /** Returns the day and what was removed since the start; undefined without limits. */
    figures: () => (day === undefined ? undefined : { day, ...removed }),
  };
}
