import type { RecentKeys } from '../lake/batch/recent-keys.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Maintenance } from './seal/maintenance.ts';

/** The step before the keys of the last hours are loaded at which a crash is tested. */
export const learnStep = 'keys-unlearnt';

/** What a compactor does once, beside its first flushes: it sweeps what a crash has left, and loads the recent keys. */
export interface StartWork {
  /**
   * Lets the maintenance sweep, once, and begins to load the keys, again where that has failed: it takes from seconds to a
   * minute and a half, and only a batch with keys waits for it. Not before the stream was compared with the log: where the
   * two disagree, a file that the log does not name may be all there is. Throws the last failure to load the keys, until
   * they are loaded: so a failure that stays is one trouble, however long each try takes.
   */
  run(signal: AbortSignal): void;
  /** Records a fault of the stream: one before the first run has the sweep keep files that it would remove. */
  noteFault(): void;
  /** Resolves when nothing is being loaded. */
  ended(): Promise<void>;
}

interface StartWorkDependencies {
  readonly maintenance: Pick<Maintenance, 'sweep'>;
  readonly keys: Pick<RecentKeys, 'warmUp' | 'size'>;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
}

/** Creates it, not begun. */
export function createStartWork({ maintenance, keys, clock, crashPoint, logger }: StartWorkDependencies): StartWork {
  let isFaulty = false;
  let learning: Promise<void> | undefined;
  let failure: { readonly error: unknown } | undefined;

  async function learn(signal: AbortSignal): Promise<void> {
    try {
      await crashPoint(learnStep);
      const startedAt = performance.now();
      await keys.warmUp(clock.nowMs(), signal);
      const durationMs = Math.round(performance.now() - startedAt);
      logger.info({ durationMs, ...keys.size() }, 'loaded the recent keys');
      failure = undefined;
    } catch (error) {
      learning = undefined;
      if (!signal.aborted) failure = { error };
    }
  }

  return {
    run(signal) {
      maintenance.sweep(isFaulty);
      learning ??= learn(signal);
      if (failure !== undefined) throw failure.error;
    },
    noteFault() {
      isFaulty = true;
    },
    ended: async () => learning,
  };
}
