import type { IdempotencyKeyCache } from '../lake/batch/idempotency-keys.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Maintenance } from './seal/maintenance.ts';

/** Crash-test step before the keys of the last hours are loaded. */
export const loadKeysStep = 'keys-unlearnt';

interface StartWorkDependencies {
  readonly maintenance: Pick<Maintenance, 'sweep'>;
  readonly keys: Pick<IdempotencyKeyCache, 'warmUp' | 'size'>;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
}

export type StartupWork = ReturnType<typeof createStartupWork>;

/** Creates the one-time work of a compactor during its first flushes: the sweep, and loading the recent keys. */
export function createStartupWork({ maintenance, keys, clock, crashPoint, logger }: StartWorkDependencies) {
  let isFaulty = false;
  let learning: Promise<void> | undefined;
  let failure: { readonly error: unknown } | undefined;

  async function learn(signal: AbortSignal): Promise<void> {
    try {
      await crashPoint(loadKeysStep);
      const startedAt = performance.now();
      await keys.warmUp(clock.nowMs(), signal);
      const durationMs = Math.round(performance.now() - startedAt);
      logger.info({ durationMs, ...keys.size() }, 'recent keys loaded');
      failure = undefined;
    } catch (error) {
      learning = undefined;
      if (!signal.aborted) failure = { error };
    }
  }

  return {
    /**
     * Lets the maintenance sweep once, and starts to load the keys, which takes up to 90 s; only batches with keys wait
     * for it. Called after the stream was compared with the log: if they disagree, a file that no commit names may be
     * the only copy. Throws the last failure to load the keys until they are loaded.
     */
    run(signal: AbortSignal): void {
      maintenance.sweep(isFaulty);
      learning ??= learn(signal);
      if (failure !== undefined) throw failure.error;
    },
    /**
     * Records a fault of the stream. After one before the first run, the sweep keeps the files that it would remove.
     */
    recordFault(): void {
      isFaulty = true;
    },
    ended: async (): Promise<void> => learning,
  };
}
