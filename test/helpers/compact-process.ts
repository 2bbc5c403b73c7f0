import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, expect, onTestFinished } from 'vitest';
import { checkLake } from '../../src/lake/check.ts';
import { listStaged } from '../../src/lake/files/staging.ts';
import { lakePaths, listTables, tablePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import type { StreamPublisher } from '../../src/stream/stream.ts';
import { bundleChild } from './bundled.ts';
import { temporaryFolder } from './folder.ts';
import { eventLine, readRows, readTotals } from './lake.ts';
import { startTestNats } from './nats.ts';
import { revenueLine } from './revenue.ts';
import { waitFor, within } from './wait.ts';

/** A folder for a lake, and a separate broker with its stream. */
export interface Place {
  readonly folder: string;
  readonly url: string;
  readonly publisher: StreamPublisher;
}

export interface ProcessSettings {
  /** The crash point at which the process is killed. */
  readonly crashAt?: string;
  /** Name of the spool folder; rivals need one each. */
  readonly spool?: string;
  /** The user to erase, instead of compacting. */
  readonly erase?: string;
  /** Whether to replay the failed events, instead of compacting. */
  readonly replay?: boolean;
  /** Whether the compactor enriches events with locations and devices. */
  readonly enriches?: boolean;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** A compactor, an erasure or a replay, in a separate process. */
export interface CompactProcess {
  readonly child: ChildProcess;
  /** Resolves when it is at work; never if it ends before. */
  readonly ready: Promise<void>;
  /**
   * The signal that ended it, or its exit code: 3 if it was fenced. Rejects five minutes after it was read, unless the
   * process has ended.
   */
  readonly exited: Promise<string>;
  readonly isGone: () => boolean;
}

const exitMs = 300_000;
/** A file that the compactor writes and removes every three seconds; a kill may leave it. */
const probeFile = '.write-probe.tmp';

/** Prepares a test file that kills compactors: bundles their program once, and kills remaining processes at the end. */
export function prepareCompactProcesses() {
  const root = temporaryFolder();
  const children = new Set<ChildProcess>();
  let bundled: string | undefined;
  // on the first start, since a short form may skip all of them
  const program = (): string => (bundled ??= bundleChild(root, 'compact-child'));
  afterAll(() => {
    for (const child of children) child.kill('SIGKILL');
  });

  return {
    /** Creates a folder for a lake, and starts a broker, which stops at the end of the test. */
    async makePlace(name: string): Promise<Place> {
      const nats = await startTestNats();
      onTestFinished(() => nats.stop());
      const { url, address } = nats.current();
      return {
        folder: path.join(root, name),
        url: url.replace('nats://', `nats://${address.user}:${address.password}@`),
        publisher: openPublisher(await nats.connect()),
      };
    },

    /** Starts a compactor, an erasure or a replay. */
    start({ folder, url }: Place, settings: ProcessSettings = {}): CompactProcess {
      const child = spawn(process.execPath, [program(), JSON.stringify({ folder, url, ...settings })], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      children.add(child);
      const ended = once(child, 'exit').then(([code, signal]) => {
        children.delete(child);
        return String(signal ?? code);
      });
      const ready = once(child.stdout, 'data').then(() => undefined);
      return {
        child,
        ready,
        get exited() {
          const exited = within(`the compactor or erasure of ${JSON.stringify(settings)} has ended`, ended, exitMs);
          // a caller that reads it early may never wait for it
          exited.catch(() => undefined);
          return exited;
        },
        isGone: () => child.exitCode !== null || child.signalCode !== null,
      };
    },
  };
}

/** Publishes a message of five events of two dates, and adds their ids to the set. */
export async function publishEvents(
  publisher: StreamPublisher,
  ids: Set<string>,
  members: Readonly<Record<string, unknown>>,
): Promise<void> {
  const lines = Array.from({ length: 5 }, (_, n) => eventLine({ event_time: 1_700_000_000 + n * 40_000, ...members }));
  for (const line of lines) ids.add(String(line['event_id']));
  await publisher.publish(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 5000);
}

/** Publishes a message of an event and two transactions, one of them a repeat, and records the new one. */
export async function publishRevenue(publisher: StreamPublisher, ids: Set<string>, transactions: Set<string>) {
  const line = eventLine({ event_time: 1_700_000_000 });
  ids.add(String(line['event_id']));
  const [first = 't0'] = transactions;
  const name = `t${transactions.size}`;
  transactions.add(name);
  const lines = [line, revenueLine(name), revenueLine(first)];
  await publisher.publish(Buffer.from(lines.map((each) => `${JSON.stringify(each)}\n`).join('')), 5000);
}

/** Publishes an event that cannot become a row: it must fail. */
export async function publishBadEvent(publisher: StreamPublisher): Promise<void> {
  await publisher.publish(Buffer.from(`${JSON.stringify(eventLine({ age: 'x' }))}\n`), 5000);
}

/** Returns the number of stored events by the lake's newest commit. */
export async function countStored(folder: string): Promise<number> {
  return (await readTotals(path.join(folder, 'lake')))?.stored ?? 0;
}

/** Waits until there are as many rows as ids, then asserts that each id has exactly one row. */
export async function waitForAll(folder: string, ids: ReadonlySet<string>): Promise<void> {
  await waitFor('every acknowledged event is in the lake', async () => (await countStored(folder)) >= ids.size, 60_000);
  const rows = (await readRows(folder, 'event_id')).map((row) => String(row['event_id']));
  expect(new Set(rows)).toEqual(ids);
  expect(rows.length).toBe(ids.size);
}

/**
 * Starts once more until the sweep of the last table, then asserts that no staged rewrite, temporary file or unknown
 * file remains.
 */
export async function expectNothingLeftOver(
  { folder }: Place,
  startSweeper: (crashAt: string) => CompactProcess,
): Promise<void> {
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const { version } = await readSnapshot(paths.table);
  const tables = await listTables(lakeDir);
  // The tables are swept one after the other: each sweep leaves the pending work of later tables.
  expect(await startSweeper(`swept:${tables.length}`).exited).toBe('SIGKILL');
  expect((await readSnapshot(paths.table)).version).toBeGreaterThan(version);
  for (const table of tables) expect(await listStaged(tablePaths(lakeDir, table).staging)).toEqual([]);
  const names = await readdir(lakeDir, { recursive: true });
  expect(
    names.filter((name) => (name.endsWith('.tmp') && !name.endsWith(probeFile)) || name.includes('pending-')),
  ).toEqual([]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
}
