import { cp, rm } from 'node:fs/promises';
import path from 'node:path';
import { jetstreamManager, type JetStreamManager } from '@nats-io/jetstream';
import { onTestFinished } from 'vitest';
import type { Compactor } from '../../src/compact/wait-for-repair.ts';
import type { StreamFaultRecord } from '../../src/compact/compact-status.ts';
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

/** Result of a compactor on a damaged stream. */
export interface Look {
  /** The reported faults, in order, and the number of notices for the operator. */
  readonly alarms: readonly StreamFault[];
  readonly notices: number;
  /** Number of epochs, including the first. */
  readonly epochs: number;
  /** Ids of published events that are not in the lake. */
  readonly missing: readonly string[];
  /** Number of duplicate rows. */
  readonly doubled: number;
  /** Findings of a lake check. */
  readonly problems: readonly unknown[];
}

/** A lake with a separate broker, which can be damaged. */
export interface DamagedBroker {
  readonly nats: TestNats;
  readonly manager: JetStreamManager;
  readonly reader: StreamReader;
  /** Publishes a message of one event, a new one unless a line is given; returns the line. */
  publish(line?: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>>;
  /** Starts the compactor unless it runs. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Waits until the lake has this number of events. */
  waitForStored(events: number): Promise<void>;
  /** Waits until the compactor has reported this number of stream faults. */
  waitForAlarms(alarms: number): Promise<void>;
  /** Waits until the stream has only the anchor. */
  waitForPurge(): Promise<void>;
  /** Copies the broker's store from the disk. */
  keepStore(): Promise<void>;
  /** Replaces the store by the copy: later messages are lost, and their sequences are reused. */
  restoreStore(): Promise<void>;
  /** Stops the compactor; returns its alarms, and compares the lake with the published events. */
  stopAndLook(): Promise<Look>;
}

/** Starts a broker for damage, and prepares a lake for its compactor; both are removed at the end of the test. */
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
  let compactor: Compactor | undefined;
  onTestFinished(() => compactor?.stop());
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
    await compactor?.stop();
    compactor = undefined;
  };
  const faults = (): readonly StreamFaultRecord[] => (compactor?.facts()['streamFaults'] ?? []) as StreamFaultRecord[];
  return {
    nats: server,
    manager: await jetstreamManager(connection.nats),
    reader,
    async publish(line = eventLine()) {
      await publisher.publish(Buffer.from(`${JSON.stringify(line)}\n`), 5000);
      published.add(String(line['event_id']));
      return line;
    },
    start: async () => void (compactor ??= await startTestCompact(folder, reader)),
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
      const notices = ((compactor?.facts()['warnings'] ?? []) as unknown[]).length;
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
