import type { Epoch } from '../../lake/log/lake-state.ts';
import type { StreamReader } from '../../stream/stream.ts';

/**
 * Knows that the stream is still as it was when it was last compared with the lake: it ended at the lake's position, a
 * pull after that is under way and has brought nothing, and the way on which it would have come was never lost. It saves
 * the broker, and an idle compactor, from several questions a second whose answers are known.
 */
export interface Stillness {
  /** How much has come so far: read before the comparison, so that what comes meanwhile is seen. */
  readonly arrivals: () => number;
  /** A pull after the epoch's position begins, at which the stream ended; `arrivals` are from before that was seen. */
  begin(epoch: Epoch, arrivals: number): void;
  /** Something failed: what is known may be wrong. */
  end(): void;
  /** Says whether it holds, for an epoch, if one is named. */
  holds(epoch?: Epoch): boolean;
}

/**
 * The stream is compared again after so long, milliseconds, whatever was heard of it: somebody may have purged the
 * message at the lake's position.
 */
const longestMs = 30_000;

/** Creates the memory. A reader that does not say what has come knows no stillness. */
export function createStillness(reader: Pick<StreamReader, 'arrivals'>, maxMs = longestMs): Stillness {
  let known: { readonly epoch: Epoch; readonly arrivals: number; readonly sinceMs: number } | undefined;
  const arrivals = (): number => reader.arrivals?.() ?? Number.NaN;
  return {
    arrivals,
    begin(epoch, before) {
      known = { epoch, arrivals: before, sinceMs: performance.now() };
    },
    end() {
      known = undefined;
    },
    holds(epoch = known?.epoch) {
      if (known === undefined || known.arrivals !== arrivals() || performance.now() - known.sinceMs >= maxMs)
        return false;
      return epoch?.appId === known.epoch.appId && epoch.position === known.epoch.position;
    },
  };
}
