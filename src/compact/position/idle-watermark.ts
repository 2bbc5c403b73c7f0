import { writeWatermark, type WatermarkRecord } from '../../lake/watermark.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { BrokerClock, StreamState } from '../../stream/stream.ts';

interface IdleWatermarkDependencies {
  readonly lakeDir: string;
  readonly assertFolder: () => void;
  readonly logger: Logger;
  /** This machine's clock without the service's offset. */
  readonly clock: Clock;
}

/** Minimum interval of readings and writes, ms. */
const minMs = 1000;

/** The new reading is a lower bound: a later known value remains, unless the clock was set back. */
function advanceWatermark(knownMs: number | undefined, { fromMs, toMs }: BrokerClock): number {
  return knownMs !== undefined && fromMs < knownMs && knownMs <= toMs ? knownMs : fromMs;
}

/** Advances the watermark without commits while the stream ends at the lake's position. */
export function createIdleWatermark({ lakeDir, assertFolder, logger, clock: machineClock }: IdleWatermarkDependencies) {
  let aheadMs = 0;
  let claim: WatermarkRecord | undefined;
  let writtenAt = -Infinity;
  let isFailing = false;

  const isDue = (): boolean => performance.now() - writtenAt >= minMs;

  function find(epoch: Epoch | undefined): number | undefined {
    const isKnown = claim !== undefined && claim.appId === epoch?.appId && claim.position === epoch.position;
    return isKnown ? claim?.watermarkMs : epoch?.watermarkMs;
  }

  async function write(known: WatermarkRecord): Promise<void> {
    writtenAt = performance.now();
    try {
      assertFolder();
      await writeWatermark(lakeDir, known);
      isFailing = false;
    } catch (error) {
      // Retried: a start may have removed the temporary file, or the disk may be full.
      if (!isFailing) logger.warn({ error: describeError(error) }, 'cannot write watermark, will retry');
      isFailing = true;
    }
  }

  return {
    isDue,
    find,
    /** Minimum lead of the broker's clock over this machine's, ms. */
    brokerAheadMs: () => aheadMs,
    /** Applies a state of the stream. Writes the file at intervals, without fsync; logs its errors. */
    async take(epoch: Epoch, { id, lastSequence, clock }: StreamState) {
      aheadMs = Math.max(0, (clock?.fromMs ?? 0) - machineClock.nowMs());
      if (clock === undefined || id !== epoch.streamId || lastSequence !== epoch.position) return;
      const { appId, position } = epoch;
      claim = { appId, position, watermarkMs: advanceWatermark(find(epoch), clock) };
      if (isDue()) await write(claim);
    },
  };
}

export type IdleWatermark = ReturnType<typeof createIdleWatermark>;
