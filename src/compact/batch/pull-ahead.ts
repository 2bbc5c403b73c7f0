import path from 'node:path';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { StreamReader } from '../../stream/stream.ts';
import { createPullMemory, pullBatch, type Batch, type BatchLimits } from './pull-batch.ts';

/** A place in a stream: after it a batch begins. */
type Place = Pick<Epoch, 'appId' | 'position'>;

/**
 * Pulls batches, one ahead of the flush: while one is converted and committed, the next is spooled. What was pulled ahead
 * counts only where it turns out to be what comes next; it is still in the stream, and is pulled again otherwise.
 */
export interface BatchPuller {
  /** The batch after a place, pulled ahead or now. As `pullBatch`. */
  pull(after: Place, limits: BatchLimits): Promise<Batch | undefined>;
  /** Begins to pull what comes after a place. */
  pullAhead(after: Place, limits: BatchLimits): void;
  /** Ends what is under way. */
  stop(): Promise<void>;
}

interface Pulling {
  readonly after: Place;
  readonly batch: Promise<Batch | undefined>;
  readonly aborter: AbortController;
}

/**
 * Creates a puller whose spool files lie in a folder, under names of its own; two are in use at a time. Aborting the
 * signal ends every pull. `onPulled` is told at the end of each that was not aborted.
 */
export function createBatchPuller(
  reader: StreamReader,
  folder: string,
  name: string,
  signal: AbortSignal,
  onPulled: (batch: Batch | undefined, limits: BatchLimits) => void = () => undefined,
): BatchPuller {
  let ahead: Pulling | undefined;
  let spools = 0;
  const memory = createPullMemory();

  function start(after: Place, limits: BatchLimits): Pulling {
    spools += 1;
    const file = path.join(folder, `${name}.${spools % 2}.ndjson`);
    const aborter = new AbortController();
    const end = (): void => aborter.abort();
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const batch = pullBatch(reader, after.position, limits, file, aborter.signal, memory)
      .then((pulled) => {
        if (!aborter.signal.aborted) onPulled(pulled, limits);
        return pulled;
      })
      .finally(() => signal.removeEventListener('abort', end));
    // Nobody may ask for it any more.
    batch.catch(() => undefined);
    return { after, batch, aborter };
  }

  async function stop(): Promise<void> {
    ahead?.aborter.abort();
    await ahead?.batch.catch(() => undefined);
    ahead = undefined;
  }

  return {
    async pull(after, limits) {
      const isNext = ahead?.after.position === after.position && ahead.after.appId === after.appId;
      if (!isNext) await stop();
      const { batch } = ahead ?? start(after, limits);
      ahead = undefined;
      return batch;
    },
    pullAhead(after, limits) {
      ahead = start(after, limits);
    },
    stop,
  };
}
