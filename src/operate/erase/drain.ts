import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/async/retry.ts';
import { listTree } from '../../runtime/files/folder-names.ts';
import { readFreeBytes } from '../../runtime/files/disk-watch.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { listFailedFiles, listSettledFiles } from '../../lake/files/failed-events.ts';
import { lakePaths } from '../../lake/lake.ts';
import type { Table } from '../../lake/log/table.ts';
import { type StreamPublisher, markerPayload } from '../../stream/stream.ts';

export interface DrainDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly publisher: StreamPublisher;
  /**
   * Folder of the embedded nats-server's store, where it is seen that the purged messages are gone; without one that is
   * believed.
   */
  readonly storeDir?: string;
  readonly signal: AbortSignal;
}

/**
 * Filler: messages without events, published behind what is to go. A purge only moves the beginning of a block;
 * nats-server rewrites the block when it has passed 2 MiB and less than half of it is live, and removes one that has
 * been filled up. Small messages, because the last one stays: the smallest stream has room for some more beside it.
 */
const fillerBytes = 128 * 1024;
const fillers = 20;
const maxRounds = 20;
const waitForLoopMs = 120_000;
const waitForBlockMs = 5000;
const publishMs = 10_000;

/** Waits until a condition holds that the running compactor brings about. Errors: `overloaded`, `stopping`. */
export async function waitUntil(
  signal: AbortSignal,
  what: string,
  condition: () => Promise<boolean>,
  waitMs = waitForLoopMs,
): Promise<void> {
  const deadline = performance.now() + waitMs;
  while (!(await condition())) {
    if (signal.aborted) throw new AppError('stopping', 'the erasure was stopped; repeat it to finish');
    if (performance.now() >= deadline)
      throw new AppError('overloaded', `timed out waiting for ${what}`, {
        hint: 'See that the compactor runs, and repeat the erasure.',
      });
    await pause(100, signal);
  }
}

/** Publishes a message without events; a full stream is waited for, as the compactor makes room. */
async function publishMarker({ publisher, signal }: DrainDependencies, payload: Uint8Array): Promise<number> {
  let sequence = 0;
  await waitUntil(signal, 'room in the stream', async () => {
    try {
      sequence = (await publisher.publish(payload, publishMs)).sequence;
    } catch (error) {
      if (isAppError(error, 'stream_full')) return false;
      throw error;
    }
    return true;
  });
  return sequence;
}

/** Says whether a text stands in any file of a folder. */
async function isInFolder(folder: string, text: string): Promise<boolean> {
  for (const name of await listTree(folder)) {
    try {
      if ((await getBytes(path.join(folder, name))).includes(text)) return true;
    } catch (error) {
      // A folder, or removed since it was listed.
      if (!isSystemError(error, 'EISDIR', 'ENOENT')) throw error;
    }
  }
  return false;
}

/**
 * Publishes filler whose first message has a text of its own, and waits until the lake's position has passed it. Only
 * the first: the end of the filler stays in the block that nats-server has rewritten without its beginning.
 */
async function passFiller(dependencies: DrainDependencies): Promise<string> {
  const { table, signal } = dependencies;
  const mark = randomUUID();
  const filler = Buffer.alloc(fillerBytes, 0x0a);
  const marked = Buffer.from(filler);
  marked.write(mark, 1);
  for (let n = 0; n < fillers; n += 1) await publishMarker(dependencies, n === 0 ? marked : filler);
  const sequence = await publishMarker(dependencies, markerPayload);
  await waitUntil(signal, 'the stream to be taken in', async () => {
    await table.refresh();
    return (table.lake().epoch?.position ?? 0) >= sequence;
  });
  return mark;
}

/** The error of a drain that got no further: that of a full disk if there is one. */
async function explain(error: unknown, { table, storeDir = table.dir }: DrainDependencies): Promise<unknown> {
  if (!isAppError(error, 'publish_unknown') && !isAppError(error, 'overloaded')) return error;
  for (const folder of [storeDir, table.dir])
    if ((await readFreeBytes(folder)) < fillers * fillerBytes)
      return new AppError('disk', `nothing was erased: no space is left on the disk of ${folder}`, {
        cause: error,
        hint: 'Free space there, then repeat the command.',
      });
  const hint = "Check what 'tributary status' says of the broker, then repeat the command.";
  return new AppError(error.code, error.message, { cause: error.cause, hint: error.hint ?? hint });
}

/**
 * Waits until the lake has everything that is in the stream now, and the broker's files no longer have it: filler is
 * published behind it, and once that is gone from the files, so is what came before. Errors: `overloaded` when the
 * compactor does not move on, or the broker keeps the bytes; `disk` when one is full; `publish_unknown`.
 */
export async function drainStream(dependencies: DrainDependencies): Promise<void> {
  try {
    await drain(dependencies);
  } catch (error) {
    throw await explain(error, dependencies);
  }
}

async function drain(dependencies: DrainDependencies): Promise<void> {
  const { table, lakeDir, storeDir, signal } = dependencies;
  const { failed } = lakePaths(lakeDir);
  for (let round = 1; ; round += 1) {
    const mark = await passFiller(dependencies);
    if (storeDir === undefined) break;
    try {
      await waitUntil(
        signal,
        'the broker to remove purged messages from its files',
        async () => !(await isInFolder(storeDir, mark)),
        waitForBlockMs,
      );
      break;
    } catch (error) {
      // Under load the rest of a block may be live: it is filled up in time.
      if (!isAppError(error, 'overloaded') || round === maxRounds) throw error;
    }
  }
  await waitUntil(
    signal,
    'failed events to get their final place',
    async () => (await listFailedFiles(failed, table.dir)).length === (await listSettledFiles(failed)).length,
  );
}
