import { jetstreamManager, type JetStreamManager } from '@nats-io/jetstream';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, onTestFinished } from 'vitest';
import { isAppError } from '../../src/runtime/errors.ts';
import { findFolderLocation } from '../../src/runtime/files/folder-id.ts';
import { openGuard, type OpenGuard } from '../../src/stream/guard.ts';
import type { OwnerOptions } from '../../src/stream/claim-stream.ts';
import { ownStream, type StreamOwner } from '../../src/stream/owner.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import type { StreamPublisher } from '../../src/stream/stream.ts';
import { silentLogger, startTestNats, type TestNats } from './nats.ts';

/** The stream objects of a service's supervisor and of one role, in one process. */
export interface OwnedStream {
  readonly owner: StreamOwner;
  readonly guard: OpenGuard;
  readonly publisher: StreamPublisher;
  stop(): Promise<void>;
}

/** Claims the stream for the data folder, as the start of a service does. */
export async function claimFor(
  nats: TestNats,
  folder: string,
  options: Partial<OwnerOptions> = {},
): Promise<StreamOwner> {
  mkdirSync(folder, { recursive: true });
  const connection = await nats.connect();
  const owner = await ownStream(connection, {
    streamName: 'SHARED',
    maxBytes: 2 ** 22,
    lake: { id: 'lake-1', findStreamId: () => Promise.resolve(undefined) },
    claimFile: path.join(folder, 'stream-claim.json'),
    livenessFolder: path.join(folder, 'run'),
    place: findFolderLocation(folder),
    replicas: 0,
    exclusive: false,
    leaseMs: 300,
    logger: silentLogger,
    ...options,
  });
  onTestFinished(() => owner.stop());
  return owner;
}

/** Opens the stream for the data folder, as an import worker does. */
export async function enterFor(
  nats: TestNats,
  folder: string,
  streamName = 'SHARED',
): Promise<Pick<OwnedStream, 'guard' | 'publisher'>> {
  const connection = await nats.connect();
  const guard = await openGuard(connection, {
    streamName,
    claimFile: path.join(folder, 'stream-claim.json'),
    logger: silentLogger,
  });
  onTestFinished(() => guard.stop());
  return { guard, publisher: openPublisher(connection, guard) };
}

/** Returns a manager of the broker's streams for an operator's changes. */
export async function operatorOf(nats: TestNats): Promise<JetStreamManager> {
  return await jetstreamManager((await nats.connect()).nats);
}

/**
 * Starts a broker for a file's tests and passes it with a manager of its streams; each test begins without a stream.
 */
export function prepareOperatedBroker(use: (nats: TestNats, operator: JetStreamManager) => void): void {
  let nats: TestNats;
  let operator: JetStreamManager;
  beforeAll(async () => {
    nats = await startTestNats({ streamMaxBytes: 'none' });
    operator = await operatorOf(nats);
    use(nats, operator);
  });
  // Registered first, so it runs last: an owner that still ran would recreate its stream.
  beforeEach((context) => {
    context.onTestFinished(async () => {
      for await (const stream of operator.streams.list()) await operator.streams.delete(stream.config.name);
    });
  });
  afterAll(() => nats.stop());
}

/** Four clients that publish continuously: acknowledged messages by sequence, and the code of the newest error. */
export interface Publishing {
  readonly acknowledged: ReadonlyMap<number, string>;
  /** Returns the code of the newest publish's error; undefined if it was acknowledged. */
  readonly refusal: string | undefined;
  stop(): Promise<void>;
}

export function startPublishing(publisher: StreamPublisher, stream: string): Publishing {
  const acknowledged = new Map<number, string>();
  const stopping = new AbortController();
  let count = 0;
  let refusal: string | undefined;
  const publish = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const text = `${stream}-${(count += 1)}`;
      try {
        acknowledged.set((await publisher.publish(Buffer.from(text), 1000)).sequence, text);
        refusal = undefined;
      } catch (error) {
        if (!isAppError(error)) throw error;
        refusal = error.code;
        await publisher.ping(5000).catch(() => undefined);
      }
    }
  };
  const publishers = Promise.all(Array.from({ length: 4 }, publish));
  return {
    acknowledged,
    get refusal() {
      return refusal;
    },
    async stop() {
      stopping.abort();
      await publishers;
    },
  };
}

/** Returns the texts of acknowledged messages above a sequence that the stream does not have. */
export async function findLost(
  manager: JetStreamManager,
  stream: string,
  { acknowledged }: Publishing,
  above = 0,
): Promise<string[]> {
  const lost: string[] = [];
  for (const [sequence, text] of acknowledged) {
    if (sequence <= above) continue;
    const message = await manager.streams.getMessage(stream, { seq: sequence }).catch(() => null);
    if (message === null || Buffer.from(message.data).toString() !== text) lost.push(text);
  }
  return lost;
}
