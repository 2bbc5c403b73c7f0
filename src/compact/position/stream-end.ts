import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import { createMutex } from '../../runtime/async/semaphore.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { type StreamReader, type StreamState, hashMessage } from '../../stream/stream.ts';
import type { FollowDependencies, Stillness } from './stream-position.ts';

/**
 * Remembers, over restarts, how far the stream was seen to go. A broker whose store is damaged can lose a tail of
 * acknowledged messages in silence: then its stream ends before where it was seen to end. Losses behind the lake's
 * position are found by the anchor (stream-position.ts); this finds those of messages that the lake has not taken in
 * yet.
 */
export interface StreamEnd extends Stoppable {
  /**
   * Looks now: before a batch is read, since once the lake has passed the mark nothing is seen any more. Returns what
   * was seen. Errors: the reader's.
   */
  look(): Promise<StreamState>;
  /** Forgets: the stream is another one, and that was reported. */
  reset(): void;
}

export interface StreamEndDependencies {
  readonly reader: StreamReader;
  /** Where it is remembered. */
  readonly file: string;
  /** The last sequence that the lake has. */
  readonly position: () => number;
  /** Throws when the folder of the file is another's by now. */
  readonly assertFolder: () => void;
  readonly alarm: FollowDependencies['alarm'];
  /** Knows whether the stream ends where it was seen to end: it is not looked at then. */
  readonly stillness: Pick<Stillness, 'holds'>;
  readonly logger: Logger;
}

interface Mark {
  readonly stream: string;
  readonly lastSequence: number;
  /** Hash of the message there: after a loss its number is soon used again. */
  readonly hash: string | undefined;
}

const lookEveryMs = 500;

/** Reads the mark; one that is damaged is as good as none. */
async function findMark(file: string): Promise<Mark | undefined> {
  const text = await findTextFile(file);
  try {
    return text === undefined ? undefined : (parseChecked(text) as unknown as Mark);
  } catch {
    return undefined;
  }
}

/** Starts looking at the end of the stream. What was published and lost between two looks is not seen. */
export async function watchStreamEnd({
  reader,
  file,
  position,
  assertFolder,
  alarm,
  stillness,
  logger,
}: StreamEndDependencies): Promise<StreamEnd> {
  let mark = await findMark(file);
  let kept = '';
  let failing = false;

  async function hashAt(sequence: number): Promise<string | undefined> {
    const message = sequence === 0 ? undefined : await reader.findMessage(sequence);
    return message === undefined ? undefined : hashMessage(message.payload);
  }

  /**
   * Says whether the message that was seen last is no longer what it was. Up to the lake's position stream-position.ts
   * reports that.
   */
  async function isLost(seen: Mark, lastSequence: number): Promise<boolean> {
    if (lastSequence < seen.lastSequence) return lastSequence >= position();
    if (seen.lastSequence <= position()) return false;
    const hash = await hashAt(seen.lastSequence);
    return hash !== undefined && seen.hash !== undefined && hash !== seen.hash;
  }

  async function lookNow(): Promise<StreamState> {
    const state = await reader.state();
    const { id: stream, lastSequence } = state;
    const hash = await hashAt(lastSequence);
    const lost = mark?.stream === stream && (await isLost(mark, lastSequence));
    const seen = mark;
    mark = { stream, lastSequence, hash };
    if (lost && seen !== undefined)
      alarm('tail_lost', { position: position(), lastSequence, seenLastSequence: seen.lastSequence });
    const text = renderChecked({ ...mark });
    if (text === kept) return state;
    try {
      assertFolder();
      await writeFileDurably(file, text);
      kept = text;
      failing = false;
    } catch (error) {
      // Tried again at the next look: the sweep of a start may have taken the temporary, or the disk be full.
      if (!failing)
        logger.warn({ file, error: describeError(error) }, 'the end of the stream cannot be written down, will retry');
      failing = true;
    }
    return state;
  }

  /** Held by a look: two at once would report a loss twice. */
  const mutex = createMutex();
  const look = (): Promise<StreamState> => mutex.run(lookNow);
  let unseen = false;
  const loop = startPollLoop(
    async () => {
      if (stillness.holds()) return;
      await look();
      unseen = false;
    },
    {
      everyMs: lookEveryMs,
      onError(error) {
        // A broker that is away is reported by the flush loop; anything else may meet this look alone.
        if (unseen || isAppError(error, 'broker_away')) return;
        unseen = true;
        logger.warn({ error: describeError(error) }, 'the end of the stream cannot be looked at, will retry');
      },
    },
  );
  return {
    look,
    reset: () => void (mark = undefined),
    stop: () => loop.stop(),
  };
}
