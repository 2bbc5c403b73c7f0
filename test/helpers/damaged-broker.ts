import { cp, rm } from 'node:fs/promises';
import path from 'node:path';
import { jetstreamManager, type JetStreamManager } from '@nats-io/jetstream';
import { onTestFinished } from 'vitest';
import type { Compact } from '../../src/compact/wait-for-repair.ts';
import type { SeenFault } from '../../src/compact/compact-status.ts';
import type { StreamFault } from '../../src/compact/position/stream-position.ts';
import { checkLake } from '../../src/lake/check.ts';
import { readHistory } from '../../src/lake/history.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import type { StreamReader } from '../../src/stream/stream.ts';
import { testFolder } from './folder.ts';
import { eventLine, readRows, startTestCompact } from './lake.ts';
import { startTestNats, type TestNats } from './nats.ts';
import { waitFor } from './wait.ts';

/** What the compactor has made of a damaged stream. */
export interface Look {
  /** The faults it told of, in order, and how many notices it shows the operator. */
  readonly alarms: readonly StreamFault[];
  readonly notices: number;
  /** Epochs begun, the first included. */
  readonly epochs: number;
  /** Ids of published events that are not in the lake. */
  readonly missing: readonly string[];
  /** Rows too many. */
  readonly doubled: number;
  /** What a check of the lake finds. */
  readonly problems: readonly unknown[];
}

/** A lake that follows a broker of its own, which can be damaged. */
export interface DamagedBroker {
  readonly nats: TestNats;
  readonly manager: JetStreamManager;
  readonly reader: StreamReader;
  /** Publishes a message of one event, which is a new one unless its line is given; returns the line. */
  publish(line?: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>>;
  /** Starts the compactor, or leaves the one that runs. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Waits until the lake has so many events. */
  waitForStored(events: number): Promise<void>;
  /** Waits until the compactor has told of so many faults of the stream. */
  waitForAlarms(alarms: number): Promise<void>;
  /** Waits until the stream keeps nothing but the anchor. */
  waitForPurge(): Promise<void>;
  /** Keeps a copy of the broker's store, as it is on the disk. */
  keepStore(): Promise<void>;
  /** Puts the copy in the place of the store: what came after it is lost, and its sequence numbers are used again. */
  restoreStore(): Promise<void>;
  /** Stops the compactor; tells its alarms, and how the lake stands to what was published. */
  stopAndLook(): Promise<Look>;
}

/** Starts a broker that a test damages, and a lake that its compactor will follow; both go when the test is over. */
export async function startDamagedBroker(): Promise<DamagedBroker> {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const server = await startTestNats();
  onTestFinished(() => server.stop());
  const connection = await server.connect();
  const publisher = openPublisher(connection);
  const reader = await openReader(await server.connect());
  const store = path.join(server.folder, 'store');
  const published = new Set<string>();
  let compact: Compact | undefined;
  onTestFinished(() => compact?.stop());
  const totals = async () => (await readSnapshot(path.join(lakeDir, 'events'))).lake?.totals;
  const again = async (): Promise<void> => {
    await server.restart();
    await waitFor('the broker is back', () =>
      publisher.ping(1000).then(
        () => true,
        () => false,
      ),
    );
  };
  const stop = async (): Promise<void> => {
    await compact?.stop();
    compact = undefined;
  };
  const faults = (): readonly SeenFault[] => (compact?.facts()['streamFaults'] ?? []) as SeenFault[];
  return {
    nats: server,
    manager: await jetstreamManager(connection.nats),
    reader,
    async publish(line = eventLine()) {
      await publisher.publish(Buffer.from(`${JSON.stringify(line)}\n`), 5000);
      published.add(String(line['event_id']));
      return line;
    },
    start: async () => void (compact ??= await startTestCompact(folder, reader)),
    stop,
    waitForAlarms: (alarms) => waitFor('the alarm', () => faults().length >= alarms),
    waitForStored: (events) => waitFor(`${events} events are stored`, async () => (await totals())?.stored === events),
    waitForPurge: () => waitFor('the stream keeps the anchor only', async () => (await reader.state()).messages === 1),
    async keepStore() {
      await server.kill();
      await cp(store, `${store}.kept`, { recursive: true });
      await again();
    },
    async restoreStore() {
      await server.kill();
      await rm(store, { recursive: true });
      await cp(`${store}.kept`, store, { recursive: true });
      await again();
    },
    async stopAndLook() {
      const alarms = faults().map(({ fault }) => fault);
      const notices = ((compact?.facts()['warnings'] ?? []) as unknown[]).length;
      await stop();
      const ids = (await readRows(folder, 'event_id')).map((row) => String(row['event_id']));
      const epochs = (await readHistory(lakeDir, 1000)).filter(({ cause }) => cause === 'epoch').length;
      const missing = [...published].filter((id) => !ids.includes(id));
      return {
        alarms,
        notices,
        epochs,
        missing,
        doubled: ids.length - new Set(ids).size,
        problems: (await checkLake(lakeDir)).problems,
      };
    },
  };
}
