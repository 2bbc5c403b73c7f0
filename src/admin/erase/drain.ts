import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { AppError, isAppError, isSystemError, unlessMissing } from '../../runtime/errors.ts';
import { pause } from '../../runtime/async/retry.ts';
import { listTree } from '../../runtime/files/folder-names.ts';
import { readFreeBytes } from '../../runtime/files/disk-watch.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { listFailedFiles, listPublishedFiles } from '../../lake/files/failed-events.ts';
import { lakePaths } from '../../lake/lake.ts';
import type { Table } from '../../lake/log/table.ts';
import { type StreamPublisher, markerPayload } from '../../stream/stream.ts';

export interface DrainDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly publisher: StreamPublisher;
  /** Store of the embedded nats-server, to verify that purged messages are deleted; without it purges are trusted. */
  readonly storeDir?: string;
  readonly signal: AbortSignal;
}

/**
 * Size of the filler, bytes: messages without events, published after the messages to delete. A purge only moves the
 * start of a block; nats-server rewrites a block of more than 2 MiB if less than half of it is live, and removes a full
 * one. The messages are small: the last one stays, and the smallest stream must have space for it.
 */
const fillerBytes = 128 * 1024;
const fillers = 20;
const maxRounds = 20;
const waitForLoopMs = 120_000;
const waitForBlockMs = 5000;
const publishMs = 10_000;

/** Waits until the compactor has met a condition. Errors: `overloaded`, `stopping`. */
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
        hint: 'Check that the compactor is running, then repeat the erasure.',
      });
    await pause(100, signal);
  }
}

/** Publishes a message without events; waits if the stream is full. */
async function publishMarker({ publisher, signal }: DrainDependencies, payload: Uint8Array): Promise<number> {
  let sequence = 0;
  await waitUntil(signal, 'space in the stream', async () => {
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

async function isInFolder(folder: string, text: string): Promise<boolean> {
  for (const name of await listTree(folder)) {
    try {
      if ((await getBytes(path.join(folder, name))).includes(text)) return true;
    } catch (error) {
      // A folder, or removed meanwhile.
      if (!isSystemError(error, 'EISDIR', 'ENOENT')) throw error;
    }
  }
  return false;
}

/** Publishes filler and waits until the lake has passed it. Returns the mark of its first message. */
async function passFiller(dependencies: DrainDependencies): Promise<string> {
  const { table, signal } = dependencies;
  const mark = randomUUID();
  const filler = Buffer.alloc(fillerBytes, 0x0a);
  const marked = Buffer.from(filler);
  marked.write(mark, 1);
  for (let n = 0; n < fillers; n += 1) await publishMarker(dependencies, n === 0 ? marked : filler);
  const sequence = await publishMarker(dependencies, markerPayload);
  await waitUntil(signal, 'the lake to commit the backlog of the stream', async () => {
    await table.refresh();
    return (table.lake().epoch?.position ?? 0) >= sequence;
  });
  return mark;
}

/**
 * Returns the error of a failed drain: that of a full disk if there is one. A lake outside of folders has a folder of
 * staged files on the compactor's host only.
 */
async function explain(error: unknown, { table, storeDir = table.dir }: DrainDependencies): Promise<unknown> {
  if (!isAppError(error, 'publish_unknown') && !isAppError(error, 'overloaded')) return error;
  for (const folder of [storeDir, table.dir])
    if ((await unlessMissing(readFreeBytes(folder), Infinity)) < fillers * fillerBytes)
      return new AppError('disk', `nothing was erased: no space is left on the disk of ${folder}`, {
        cause: error,
        hint: 'Free space there, then repeat the command.',
      });
  const hint = "Check the broker with 'tributary status', then repeat the command.";
  return new AppError(error.code, error.message, { cause: error.cause, hint: error.hint ?? hint });
}

/**
 * Waits until the lake has all messages of the stream, and the broker's files no longer have them: they are deleted
 * when filler published after them is. Errors: `overloaded` if the compactor does not advance or the broker keeps the
 * bytes; `disk` for a full one; `publish_unknown`.
 */
export function drainStream(dependencies: DrainDependencies): Promise<void> {
  return drain(dependencies).catch(async (error: unknown) => {
    throw await explain(error, dependencies);
  });
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
      // Under load most of a block may be live; more filler fills it up.
      if (!isAppError(error, 'overloaded') || round === maxRounds) throw error;
    }
  }
  await waitUntil(
    signal,
    'failed events to get their final names',
    async () => (await listFailedFiles(failed, table.dir)).length === (await listPublishedFiles(failed)).length,
  );
}
