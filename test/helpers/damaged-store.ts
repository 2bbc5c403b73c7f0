import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import pino from 'pino';
import type { StreamFaultRecord } from '../../src/compact/compact-status.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { describeError } from '../../src/runtime/errors.ts';
import { openConnection, type StreamConnection } from '../../src/stream/connection.ts';
import { startNatsServer } from '../../src/stream/nats-server.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import { streamName, type StreamPublisher, type StreamReader } from '../../src/stream/stream.ts';
import { ensureStream } from '../../src/stream/stream-admin.ts';
import { eventLine, readRows, startTestCompact } from './lake.ts';
import { natsBinary, silentLogger } from './nats.ts';
import { waitFor, within } from './wait.ts';

/** Result of a start of broker and compactor on a data folder. */
export interface StoreLook {
  /** Stream faults that the compactor reported, or errors of a failed start. */
  readonly alarms: readonly string[];
  /** Warnings and errors in nats-server's log. */
  readonly brokerLines: readonly string[];
  readonly missing: number;
  readonly doubled: number;
}

const maxStoreBytes = 64 * 1024 * 1024;
const natsFolder = (folder: string): string => path.join(folder, 'nats');

/** Lists the files of the event stream in the broker's store, below a data folder. */
export function listStoreFiles(folder: string): readonly string[] {
  const stream = path.join(natsFolder(folder), 'store', 'jetstream', '$G', 'streams', streamName);
  return readdirSync(stream, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
}

interface Broker {
  readonly connection: StreamConnection;
  readonly publisher: StreamPublisher;
  readonly reader: StreamReader;
  stop(how: 'stopped' | 'killed'): Promise<void>;
}

async function startBroker(folder: string, lines: string[]): Promise<Broker> {
  const refused = new AbortController();
  const logger = pino(
    { level: 'warn' },
    {
      write(text: string) {
        const { line = '' } = JSON.parse(text) as { line?: string };
        lines.push(line);
        // It never becomes ready then: the wait can end.
        if (line.includes('Stream metafile')) refused.abort();
      },
    },
  );
  const server = await startNatsServer({
    binary: await natsBinary(),
    folder: natsFolder(folder),
    maxStoreBytes,
    signal: refused.signal,
    logger,
  });
  const { user, password } = server.address;
  const connection = await openConnection({ url: server.url, user, password, name: 'test', logger: silentLogger });
  const stop = async (how: 'stopped' | 'killed'): Promise<void> => {
    await connection.close();
    if (how === 'stopped') await server.stop(5000);
    else server.kill();
    await within('nats-server has exited', server.exited);
  };
  try {
    await ensureStream(connection, { maxBytes: maxStoreBytes / 2 });
    return { connection, publisher: openPublisher(connection), reader: await openReader(connection), stop };
  } catch (error) {
    await stop('killed');
    throw error;
  }
}

/** Publishes messages of one to three events, and returns the ids of the acknowledged ones. */
async function publish(publisher: StreamPublisher, messages: number): Promise<string[]> {
  const ids: string[] = [];
  for (let n = 0; n < messages; n += 1) {
    const lines = Array.from({ length: 1 + (n % 3) }, () => eventLine({ custom_user_id: 'u'.repeat(1 + (n % 40)) }));
    await publisher.publish(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 5000);
    ids.push(...lines.map((line) => String(line['event_id'])));
  }
  return ids;
}

async function compactAll(folder: string, reader: StreamReader): Promise<readonly string[]> {
  const before = (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals.streamed ?? 0;
  const compactor = await startTestCompact(folder, reader);
  const faults = (): string[] => (compactor.facts()['streamFaults'] as StreamFaultRecord[]).map(({ fault }) => fault);
  try {
    const { lastSequence } = await reader.state();
    const failure = compactor.failed.catch((error: unknown) => describeError(error));
    let failed: string | undefined;
    void failure.then((error) => (failed = error));
    // A damaged stream may end before the lake's position: the last published events must still arrive, or raise an
    // alarm.
    await waitFor(
      'the compactor has read something, or reported a fault',
      () => failed !== undefined || faults().length > 0 || Number(compactor.facts()['streamed']) > before,
    );
    await waitFor(
      'the compactor has what the stream has',
      () => failed !== undefined || Number(compactor.facts()['position']) >= lastSequence,
    );
    return [...faults(), ...(failed === undefined ? [] : [failed])];
  } finally {
    await compactor.stop();
  }
}

/**
 * Creates a data folder: a lake with the first messages, and a broker with the anchor and the others. Returns the ids
 * of all events.
 */
export async function makeStore(folder: string, how: 'stopped' | 'killed'): Promise<string[]> {
  const broker = await startBroker(folder, []);
  const ids = await publish(broker.publisher, 30);
  await compactAll(folder, broker.reader);
  ids.push(...(await publish(broker.publisher, 40)));
  // A compactor that has not committed the rest has still read it.
  const { lastSequence } = await broker.reader.state();
  const compactor = await startTestCompact(folder, broker.reader, { flushAgeMs: 600_000 });
  await waitFor('the end of the stream is remembered', async () =>
    (await readFile(lakePaths(path.join(folder, 'lake')).streamEnd, 'utf8')).includes(
      `"lastSequence":${lastSequence},`,
    ),
  );
  await compactor.stop();
  await broker.stop(how);
  return ids;
}

/**
 * Starts broker and compactor on a damaged data folder, publishes once more, and compares the lake with the
 * acknowledged ids.
 */
export async function lookAtStore(folder: string, ids: readonly string[]): Promise<StoreLook> {
  const brokerLines: string[] = [];
  const expected = [...ids];
  const alarms: string[] = [];
  try {
    const broker = await startBroker(folder, brokerLines);
    try {
      expected.push(...(await publish(broker.publisher, 1)));
      alarms.push(...(await compactAll(folder, broker.reader)));
    } finally {
      await broker.stop('killed');
    }
  } catch (error) {
    alarms.push(describeError(error));
  }
  const rows = (await readRows(folder, 'event_id')).map((row) => String(row['event_id']));
  const stored = new Set(rows);
  return {
    alarms,
    brokerLines,
    missing: expected.filter((id) => !stored.has(id)).length,
    doubled: rows.length - stored.size,
  };
}
