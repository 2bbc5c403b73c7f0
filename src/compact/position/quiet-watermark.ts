import { keepWatermark, type WatermarkClaim } from '../../lake/watermark.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { BrokerClock, StreamState } from '../../stream/stream.ts';

/**
 * Moves the watermark on while nothing comes, and no commit is made: a stream that ends at the lake's position has
 * nothing that the lake has not, by the broker's clock as it was then.
 */
export interface QuietWatermark {
  /** It is time to look at the stream for it. */
  isDue(): boolean;
  /** Takes in a look at the stream. Writes the file, without an fsync, now and then; an error of that is logged. */
  take(epoch: Epoch, state: StreamState): Promise<void>;
  /** The watermark of an epoch's position, Unix milliseconds; undefined while none is known. */
  find(epoch: Epoch | undefined): number | undefined;
  /** How far the broker's clock was ahead of this machine's at the last look, at least, milliseconds; else 0. */
  brokerAheadMs(): number;
}

interface QuietWatermarkDependencies {
  readonly lakeDir: string;
  /** Throws when the lake's folder is another's by now. */
  readonly assertFolder: () => void;
  readonly logger: Logger;
  /** This machine's clock, without an offset of the service: the broker knows none either. */
  readonly clock: Clock;
}

/** At least so long from one look to the next that is made for this alone, and from one writing to the next, milliseconds. */
const leastMs = 1000;

/**
 * What is known after a look. It names a time before the look, so what was known may be a little later, and holds; unless
 * the clock was set back behind it.
 */
function moveOn(knownMs: number | undefined, { fromMs, toMs }: BrokerClock): number {
  return knownMs !== undefined && fromMs < knownMs && knownMs <= toMs ? knownMs : fromMs;
}

/** Creates it, knowing nothing: a start looks at the stream anyway. */
export function createQuietWatermark({
  lakeDir,
  assertFolder,
  logger,
  clock: machineClock,
}: QuietWatermarkDependencies): QuietWatermark {
  let aheadMs = 0;
  let claim: WatermarkClaim | undefined;
  let writtenAt = -Infinity;
  let isFailing = false;

  const isDue = (): boolean => performance.now() - writtenAt >= leastMs;

  function find(epoch: Epoch | undefined): number | undefined {
    const isKnown = claim !== undefined && claim.appId === epoch?.appId && claim.position === epoch.position;
    return isKnown ? claim?.watermarkMs : epoch?.watermarkMs;
  }

  async function write(known: WatermarkClaim): Promise<void> {
    writtenAt = performance.now();
    try {
      assertFolder();
      await keepWatermark(lakeDir, known);
      isFailing = false;
    } catch (error) {
      // Tried again: the sweep of a start may have taken the temporary, or the disk be full.
      if (!isFailing) logger.warn({ error: describeError(error) }, 'the watermark cannot be written down, will retry');
      isFailing = true;
    }
  }

  return {
    isDue,
    find,
    brokerAheadMs: () => aheadMs,
    async take(epoch, { id, lastSequence, clock }) {
      aheadMs = Math.max(0, (clock?.fromMs ?? 0) - machineClock.nowMs());
      if (clock === undefined || id !== epoch.streamId || lastSequence !== epoch.position) return;
      const { appId, position } = epoch;
      claim = { appId, position, watermarkMs: moveOn(find(epoch), clock) };
      if (isDue()) await write(claim);
    },
  };
}
