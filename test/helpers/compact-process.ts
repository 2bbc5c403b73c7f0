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

/** A lake to be, and a broker with a stream of its own. */
export interface Place {
  readonly folder: string;
  readonly url: string;
  readonly publisher: StreamPublisher;
}

export interface ProcessSettings {
  /** The crash point that ends the process. */
  readonly crashAt?: string;
  /** Name of the spool folder; rivals need one each. */
  readonly spool?: string;
  /** The user to erase, instead of compacting. */
  readonly erase?: string;
  /** Try the failed events again, instead of compacting. */
  readonly replay?: boolean;
  /** The compactor tells places and devices of the events. */
  readonly enriches?: boolean;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** A compactor, an erasure or a replay, in a process of its own. */
export interface CompactProcess {
  readonly child: ChildProcess;
  /** Settles when it is at work; never, when it ends before. */
  readonly ready: Promise<void>;
  /**
   * The signal that ended it, or its exit code: 3 when it was fenced. Fails when it has not ended five minutes after it
   * was asked for.
   */
  readonly exited: Promise<string>;
  readonly isGone: () => boolean;
}

const exitMs = 300_000;
/** What the compactor writes every three seconds, and removes: it may be killed in between. */
const probeFile = '.write-probe.tmp';

/** Prepares a test file that kills compactors: bundles their program once, and kills what is left at the end. */
export function prepareCompactProcesses() {
  const root = temporaryFolder();
  const children = new Set<ChildProcess>();
  let bundled: string | undefined;
  // by the first that is started, since a short form may leave all of them out
  const program = (): string => (bundled ??= bundleChild(root, 'compact-child'));
  afterAll(() => {
    for (const child of children) child.kill('SIGKILL');
  });

  return {
    /** Makes a folder for a lake, and starts a broker, which stops when the test is over. */
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
          // who takes it early may never wait for it
          exited.catch(() => undefined);
          return exited;
        },
        isGone: () => child.exitCode !== null || child.signalCode !== null,
      };
    },
  };
}

/** Publishes a message of five events of two dates, and remembers their ids. */
export async function publishEvents(
  publisher: StreamPublisher,
  ids: Set<string>,
  members: Readonly<Record<string, unknown>>,
): Promise<void> {
  const lines = Array.from({ length: 5 }, (_, n) => eventLine({ event_time: 1_700_000_000 + n * 40_000, ...members }));
  for (const line of lines) ids.add(String(line['event_id']));
  await publisher.publish(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 5000);
}

/** Publishes a message of an event and two transactions, one of them sent before, and remembers the new one. */
export async function publishRevenue(publisher: StreamPublisher, ids: Set<string>, transactions: Set<string>) {
  const line = eventLine({ event_time: 1_700_000_000 });
  ids.add(String(line['event_id']));
  const [first = 't0'] = transactions;
  const name = `t${transactions.size}`;
  transactions.add(name);
  const lines = [line, revenueLine(name), revenueLine(first)];
  await publisher.publish(Buffer.from(lines.map((each) => `${JSON.stringify(each)}\n`).join('')), 5000);
}

/** Publishes an event that no row can be made of: it must end among the failed events. */
export async function publishBadEvent(publisher: StreamPublisher): Promise<void> {
  await publisher.publish(Buffer.from(`${JSON.stringify(eventLine({ age: 'x' }))}\n`), 5000);
}

/** Number of events that the lake's newest commit counts as stored. */
export async function countStored(folder: string): Promise<number> {
  return (await readTotals(path.join(folder, 'lake')))?.stored ?? 0;
}

/** Waits until there are as many rows as ids, then asserts that they are these, each once. */
export async function waitForAll(folder: string, ids: ReadonlySet<string>): Promise<void> {
  await waitFor('every acknowledged event is in the lake', async () => (await countStored(folder)) >= ids.size, 60_000);
  const rows = (await readRows(folder, 'event_id')).map((row) => String(row['event_id']));
  expect(new Set(rows)).toEqual(ids);
  expect(rows.length).toBe(ids.size);
}

/**
 * Asserts that one more start, which the sweep of its last table ends, leaves no staged work, no temporary, and no file
 * that the log does not know.
 */
export async function expectNothingLeftOver(
  { folder }: Place,
  startSweeper: (crashAt: string) => CompactProcess,
): Promise<void> {
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const { version } = await readSnapshot(paths.table);
  const tables = await listTables(lakeDir);
  // Each table is swept after the other: the first one's sweep leaves the work in hand of those that follow.
  expect(await startSweeper(`swept:${tables.length}`).exited).toBe('SIGKILL');
  expect((await readSnapshot(paths.table)).version).toBeGreaterThan(version);
  for (const table of tables) expect(await listStaged(tablePaths(lakeDir, table).staging)).toEqual([]);
  const names = await readdir(lakeDir, { recursive: true });
  expect(
    names.filter((name) => (name.endsWith('.tmp') && !name.endsWith(probeFile)) || name.includes('pending-')),
  ).toEqual([]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
}
