import path from 'node:path';
import { parseChecksummed, renderChecksummed } from '../../runtime/files/checksummed-json.ts';
import { findText, type ObjectStore } from '../../runtime/store/object-store.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { isCount, isText, optional, shapeOf } from '../../runtime/store/shape.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { createMutex } from '../../runtime/async/semaphore.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { type StreamReader, type StreamState, hashMessage } from '../../stream/stream.ts';
import type { StreamPositionDependencies, IdleStream } from './stream-position.ts';

export interface StreamEndDependencies {
  readonly reader: StreamReader;
  readonly file: string;
  readonly position: () => number;
  readonly assertFolder: () => void;
  readonly alarm: StreamPositionDependencies['alarm'];
  /** No check runs while it holds. */
  readonly idleStream: Pick<IdleStream, 'isIdle'>;
  readonly logger: Logger;
}

interface Mark {
  readonly stream: string;
  readonly lastSequence: number;
  /** Hash of that message: its sequence is soon reused after a loss. */
  readonly hash: string | undefined;
}

const isMark = shapeOf<Mark>({ stream: isText, lastSequence: isCount, hash: optional(isText) });

const pollIntervalMs = 500;

const storeOf = (file: string): ObjectStore => openStore(path.dirname(file), { isGrowing: true });

async function findMark(file: string): Promise<Mark | undefined> {
  const text = await findText(storeOf(file), path.basename(file));
  try {
    const mark = text === undefined ? undefined : parseChecksummed(text);
    return isMark(mark) ? mark : undefined;
  } catch {
    return undefined;
  }
}

/** Starts the checks. A message that is published and lost between two checks goes unnoticed. */
export async function startLastSequenceTracker({
  reader,
  file,
  position,
  assertFolder,
  alarm,
  idleStream,
  logger,
}: StreamEndDependencies) {
  let mark = await findMark(file);
  let writtenText = '';
  let failing = false;

  async function hashAt(sequence: number): Promise<string | undefined> {
    const message = sequence === 0 ? undefined : await reader.findMessage(sequence);
    return message === undefined ? undefined : hashMessage(message.payload);
  }

  /** Reports whether the last seen message has changed. Up to the lake's position stream-position.ts reports that. */
  async function isLost(seen: Mark, lastSequence: number): Promise<boolean> {
    if (lastSequence < seen.lastSequence) return lastSequence >= position();
    if (seen.lastSequence <= position()) return false;
    const hash = await hashAt(seen.lastSequence);
    return hash !== undefined && seen.hash !== undefined && hash !== seen.hash;
  }

  async function checkNow(): Promise<StreamState> {
    const state = await reader.state();
    const { id: stream, lastSequence } = state;
    const hash = await hashAt(lastSequence);
    const lost = mark?.stream === stream && (await isLost(mark, lastSequence));
    const seen = mark;
    mark = { stream, lastSequence, hash };
    if (lost && seen !== undefined)
      alarm('tail_lost', { position: position(), lastSequence, seenLastSequence: seen.lastSequence });
    const text = renderChecksummed({ ...mark });
    if (text === writtenText) return state;
    try {
      assertFolder();
      await storeOf(file).replace(path.basename(file), Buffer.from(text), 'any');
      writtenText = text;
      failing = false;
    } catch (error) {
      if (!failing)
        logger.warn({ file, error: describeError(error) }, 'cannot record the end of the stream, will retry');
      failing = true;
    }
    return state;
  }

  /** Two concurrent checks would report a loss twice. */
  const mutex = createMutex();
  const check = (): Promise<StreamState> => mutex.run(checkNow);
  let unseen = false;
  const loop = startPollLoop(
    async () => {
      if (idleStream.isIdle()) return;
      await check();
      unseen = false;
    },
    {
      everyMs: pollIntervalMs,
      onError(error) {
        // The flush loop reports a missing broker; other errors may occur here only.
        if (unseen || isAppError(error, 'broker_away')) return;
        unseen = true;
        logger.warn({ error: describeError(error) }, 'cannot check the end of the stream, will retry');
      },
    },
  );
  return {
    /** Checks now, before a batch is read: once the lake has passed the mark, no loss can be detected. */
    check,
    /** Discards the mark: another stream has replaced this one, which was reported. */
    reset: () => void (mark = undefined),
    stop: () => loop.stop(),
  };
}

/**
 * Records across restarts how far the stream reached. A damaged broker may lose acknowledged messages at the end
 * silently. Losses before the lake's position are found by the anchor (stream-position.ts), later ones by this.
 */
export type LastSequenceTracker = Awaited<ReturnType<typeof startLastSequenceTracker>>;
