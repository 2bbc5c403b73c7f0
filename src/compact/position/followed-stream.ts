import { type Follower, findAhead } from '../batch/follower.ts';
import type { Batch } from '../batch/pull-batch.ts';
import { assertOwner } from '../lake-owner.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { QuietWatermark } from './quiet-watermark.ts';
import {
  type FollowDependencies,
  type Stillness,
  findStreamFault,
  followStream,
  isStillWhole,
  skipHole,
} from './stream-position.ts';
import type { StreamEnd } from './stream-end.ts';

/** The stream as the flush loop reads it. */
export interface FollowedStream {
  /** Compares the stream with the lake's position unless it is known to be unchanged. Returns the epoch to read. */
  compare(): Promise<Epoch>;
  /** See `findAhead` of batch/follower.ts. */
  findAhead(epoch: Epoch): Epoch | undefined;
  /** Reports whether a batch belongs to the stream that the lake follows. Errors: `fenced`, the reader's. */
  isOurs(epoch: Epoch, batch: Batch): Promise<boolean>;
  /** See `skipHole` of stream-position.ts. */
  skipHole(epoch: Epoch): Promise<void>;
  /**
   * Ends a run without a batch. If the stream counts messages after the position and has none there, its store was
   * damaged at the end: no later pull would show that.
   */
  endQuietTurn(epoch: Epoch): Promise<void>;
  /** Purges up to the position, unless the stream has changed: then it may hold messages that the lake lacks. */
  purge(epoch: Epoch): Promise<void>;
  /** Discards what is known of the stream, after a failure. */
  distrust(): void;
}

interface FollowedStreamDependencies extends Omit<FollowDependencies, 'findAhead'> {
  readonly followers: readonly Follower[];
  readonly stillness: Stillness;
  readonly streamEnd: Pick<StreamEnd, 'look'>;
  readonly watermark: QuietWatermark;
  readonly logger: Logger;
}

export function createFollowedStream(dependencies: FollowedStreamDependencies): FollowedStream {
  const { table, reader, writer, followers, stillness, streamEnd, watermark, logger } = dependencies;
  const ahead = (epoch: Epoch): Epoch | undefined => findAhead(followers, epoch);
  const follow: FollowDependencies = { ...dependencies, findAhead: ahead };
  const skip = (epoch: Epoch): Promise<void> => skipHole(follow, epoch);
  return {
    findAhead: ahead,
    skipHole: skip,
    distrust: () => stillness.end(),
    async compare() {
      const known = table.lake().epoch;
      if (known !== undefined && stillness.holds(known)) {
        if (!watermark.isDue()) return known;
        const state = await reader.state();
        // The anchor finds a stream that has lost its end and reused the numbers.
        if (stillness.holds(known)) await watermark.take(known, state);
        return known;
      }
      const arrivals = stillness.arrivals();
      const state = await streamEnd.look();
      const epoch = await followStream(follow);
      await watermark.take(epoch, state);
      if (state.lastSequence === epoch.position && ahead(epoch) === undefined) stillness.begin(epoch, arrivals);
      return epoch;
    },
    async isOurs(epoch, batch) {
      const other = ahead(epoch);
      if (other?.position === batch.lastSequence && other.anchorHash !== batch.lastHash) return false;
      const fault = await findStreamFault(reader, epoch);
      if (fault === undefined) return true;
      // A compactor that has taken over the lake purges what it has stored: no loss.
      await table.refresh();
      assertOwner(table.lake(), writer);
      if (!(await isStillWhole(reader, epoch, fault, batch))) return false;
      logger.error(
        { fault, firstSequence: batch.firstSequence, lastSequence: batch.lastSequence },
        'messages were removed from the stream while they were read: they are taken in all the same',
      );
      return true;
    },
    async endQuietTurn(epoch) {
      // A gap before a message that came has begun a new epoch already.
      const isSame = table.lake().epoch?.appId === epoch.appId;
      if (isSame && !stillness.holds(epoch) && ahead(epoch) === undefined) await skip(epoch);
    },
    async purge(epoch) {
      if ((await findStreamFault(reader, epoch)) === undefined) await reader.purgeBelow(epoch.position);
    },
  };
}
