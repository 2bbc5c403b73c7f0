import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { inParallel, withTimeout } from '../runtime/async/in-parallel.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { createRateLimitedLog, failureBound } from '../runtime/problems/rate-limited-log.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { openStore } from '../runtime/store/open-store.ts';
import type { Tag } from '../runtime/store/object-store.ts';
import {
  parseAuditEntry,
  renderAuditEntry,
  type AuditAction,
  type AuditDetails,
  type AuditEntry,
  type AuditOutcome,
} from './audit-entry.ts';

/**
 * Audit: who signed in, exported, downloaded, saw rows, erased and changed access.
 *
 * In: actions of users in the export process, and of commands. Out: entries for operators, newest first.
 * Invariant: an entry is durable when `record` resolves, unless the store does not respond: then `problems` says so.
 * Each process appends to objects that no other process writes, `<UTC day>/<Unix ms>-<writer>-<number>.ndjson`, so that
 * processes and hosts need no lock.
 * Crash: the entry of the action in progress may be missing. A truncated last line is skipped.
 */
export interface AuditLog {
  /** Records an action, durably when it resolves. Repeated downloads, views and refusals are counted. Never rejects. */
  record(action: AuditAction, outcome: AuditOutcome, details: AuditDetails): Promise<void>;
  problems(): readonly Problem[];
  /** Removes expired entries, and the oldest beyond the limit of objects. One process of all hosts calls it. */
  sweep(): Promise<void>;
  /** Writes the counts of repeated actions. */
  stop(): Promise<void>;
}

export interface AuditOptions {
  readonly folder: string;
  /** Retention; 0: nothing is recorded. */
  readonly keepDays: number;
  /** Whether the folder is still the one that the process was started on. */
  readonly isOwn?: () => boolean;
}

/** Size at which a process begins its next object: a store without appends rewrites it for each entry. */
const maxObjectBytes = 64 * 1024;
/** Limit of all objects, 1 GiB. */
const maxObjects = 16_384;
/** Limit of the entries that wait for a store that cannot be written. */
const maxWaiting = 1000;
const retryMs = 5000;
/** Limit of the time for which an action waits for its entry, ms: a bucket may not respond. The entry then follows. */
const maxDelayMs = 2000;
/** Period in which equal downloads, views and refusals share an entry. */
const repeatMs = 600_000;
/** Most different ones per period; the others share one entry per action. */
const maxRepeats = { read: 10_000, refused: 100 } as const;
const dayMs = 86_400_000;
const readsAtOnce = 8;

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** Appends lines to the objects of this process. Error: that of the store. */
function createWriter(folder: string, clock: Clock) {
  const writer = randomBytes(6).toString('hex');
  let objects = 0;
  let current: { readonly key: string; readonly bytes: number; readonly tag: Tag | 'absent' } | undefined;

  async function tryAppend(lines: Buffer): Promise<boolean> {
    const nowMs = clock.nowMs();
    const day = dayOf(nowMs);
    const isOpen = current?.key.startsWith(`${day}/`) === true && current.bytes + lines.length <= maxObjectBytes;
    const target = isOpen && current !== undefined ? current : undefined;
    const { key, bytes, tag } = target ?? {
      key: `${day}/${nowMs}-${writer}-${(objects += 1)}.ndjson`,
      bytes: 0,
      tag: 'absent',
    };
    // After an error, the state of the object is unknown: the lines are written to another one, under their ids.
    current = undefined;
    const written = await openStore(folder).append(key, lines, bytes, tag);
    if (written === 'conflict') return false;
    current = { key, bytes: bytes + lines.length, tag: written };
    return true;
  }

  return async (entries: readonly AuditEntry[]): Promise<void> => {
    // Each line begins with an end of line: the previous one may be truncated.
    const lines = Buffer.from(entries.map((entry) => `\n${renderAuditEntry(entry)}`).join(''));
    if ((await tryAppend(lines)) || (await tryAppend(lines))) return;
    throw new Error('the object of this process was changed by another one');
  };
}

/** An entry before it is written. */
type Recorded = Pick<AuditEntry, 'action' | 'outcome'> & AuditDetails;

/** Counts equal actions. The first one of a period is an entry at once, the others are one at its end. */
function createRepeats(write: (recorded: Recorded, count: number) => void) {
  const repeats = new Map<string, { readonly recorded: Recorded; readonly timer: NodeJS.Timeout; count: number }>();
  const sizes = { read: 0, refused: 0 };

  function kindOf({ action, outcome }: Recorded): keyof typeof sizes | undefined {
    if (outcome === 'refused') return 'refused';
    return action === 'download' || action === 'view' ? 'read' : undefined;
  }

  function end(key: string): void {
    const found = repeats.get(key);
    if (found === undefined) return;
    clearTimeout(found.timer);
    repeats.delete(key);
    const kind = kindOf(found.recorded);
    if (kind !== undefined) sizes[kind] -= 1;
    if (found.count > 0) write(found.recorded, found.count);
  }

  return {
    /** Reports whether the action is a repeated one of a period, and counts it. */
    count(recorded: Recorded): boolean {
      const kind = kindOf(recorded);
      if (kind === undefined) return false;
      const { action, outcome } = recorded;
      const isOwn = repeats.has(JSON.stringify(recorded)) || sizes[kind] < maxRepeats[kind];
      const counted = isOwn ? recorded : { action, outcome };
      const key = JSON.stringify(counted);
      const found = repeats.get(key);
      if (found !== undefined) {
        found.count += 1;
        return true;
      }
      sizes[kind] += 1;
      repeats.set(key, {
        recorded: counted,
        timer: setTimeout(end, repeatMs, key).unref(),
        count: isOwn ? 0 : 1,
      });
      return !isOwn;
    },
    end(): void {
      for (const key of repeats.keys()) end(key);
    },
  };
}

/** Opens the audit log of one process. Writes nothing yet. */
export function openAuditLog(
  { folder, keepDays, isOwn = () => true }: AuditOptions,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
): AuditLog {
  const append = createWriter(folder, clock);
  const host = openStore(folder).isShared ? hostname() : undefined;
  const failures = createRateLimitedLog((fields) => logger.error(fields, 'cannot write the audit log'), failureBound);
  let waiting: AuditEntry[] = [];
  let lost = 0;
  let failure: string | undefined;
  let writing = Promise.resolve();
  let retry: NodeJS.Timeout | undefined;

  async function writeWaiting(): Promise<void> {
    const entries = waiting;
    if (entries.length === 0) return;
    waiting = [];
    try {
      if (!isOwn()) throw new Error('the data folder is another one');
      await append(entries);
      if (lost > 0) logger.error({ entries: lost }, 'audit entries lost');
      [failure, lost] = [undefined, 0];
    } catch (error) {
      failure = describeError(error);
      failures.add({ error: failure, entries: entries.length });
      const all = [...entries, ...waiting];
      lost += Math.max(0, all.length - maxWaiting);
      waiting = all.slice(-maxWaiting);
      retry ??= setTimeout(() => {
        retry = undefined;
        void flush();
      }, retryMs).unref();
    }
  }

  /** Writes what waits; calls during a write share the next one. */
  function flush(): Promise<void> {
    return (writing = writing.then(writeWaiting));
  }

  function write(recorded: Recorded, count?: number): Promise<void> {
    const time = new Date(clock.nowMs()).toISOString();
    waiting.push({ ...recorded, id: randomBytes(8).toString('hex'), time, count, host });
    return flush();
  }
  const repeats = createRepeats((recorded, count) => void write(recorded, count));

  return {
    async record(action, outcome, details) {
      const recorded = { action, outcome, ...details };
      if (keepDays === 0 || repeats.count(recorded)) return;
      await withTimeout(maxDelayMs, write(recorded)).catch(() => undefined);
    },
    problems() {
      if (failure === undefined) return [];
      const state = lost === 0 ? `${waiting.length} entries wait` : `${lost} entries are lost`;
      const action = `Check the permissions and the free space of ${openStore(folder).nameOf('')}.`;
      return [{ code: 'audit_unwritable', message: `cannot write the audit log, ${state}: ${failure}`, action }];
    },
    async sweep() {
      if (!isOwn()) return;
      await sweepAudit(folder, keepDays, clock.nowMs());
    },
    async stop() {
      repeats.end();
      clearTimeout(retry);
      await flush();
      clearTimeout(retry);
    },
  };
}

async function sweepAudit(folder: string, keepDays: number, nowMs: number): Promise<void> {
  const store = openStore(folder);
  const firstDay = dayOf(nowMs - keepDays * dayMs);
  const keys = (await store.list('')).filter((key) => /^\d{4}-\d\d-\d\d\//.test(key)).toSorted();
  const expired = keys.filter((key) => key < firstDay);
  const excess = keys.slice(expired.length, Math.max(expired.length, keys.length - maxObjects));
  await store.remove([...expired, ...excess]);
}

/** Days of entries, `YYYY-MM-DD`, both included; all by default. */
export interface AuditDays {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

/**
 * Reads the entries by UTC day, newest first. `damaged` counts lines that cannot be read. Memory: the entries of a day.
 */
export async function* readAuditDays(
  folder: string,
  { from = '', to = '9999-12-31' }: AuditDays = {},
): AsyncGenerator<{ readonly entries: readonly AuditEntry[]; readonly damaged: number }, void, void> {
  const store = openStore(folder);
  const days = (await store.folders('')).filter((day) => /^\d{4}-\d\d-\d\d$/.test(day) && day >= from && day <= to);
  for (const day of days.toSorted().toReversed()) {
    const entries = new Map<string, AuditEntry>();
    let damaged = 0;
    await inParallel(await store.list(`${day}/`), readsAtOnce, async (key) => {
      const found = await store.get(key);
      const text = found === undefined ? '' : Buffer.from(found.bytes).toString('utf8');
      for (const line of text.split('\n')) {
        const entry = line === '' ? undefined : parseAuditEntry(line);
        if (entry !== undefined) entries.set(entry.id, entry);
        else if (line !== '') damaged += 1;
      }
    });
    yield { entries: [...entries.values()].toSorted((a, b) => b.time.localeCompare(a.time)), damaged };
  }
}
