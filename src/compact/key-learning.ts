import type { RecentKeys } from '../lake/batch/recent-keys.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Logger } from '../runtime/logger.ts';

/** The step before the keys of the last hours are loaded at which a crash is tested. */
export const learnStep = 'keys-unlearnt';

/**
 * Loads the keys of the last hours once, beside the flushes: reading their files takes from seconds to a minute and a
 * half, and batches without keys need not wait for it. The first batch with keys does: the memory of keys is one at a
 * time.
 */
export interface KeyLearning {
  /** Begins, unless it has begun. Throws what it ended with since the last call; the next one begins anew. */
  begin(signal: AbortSignal): void;
  /** Resolves when nothing is being loaded. */
  ended(): Promise<void>;
}

export interface KeyLearningDependencies {
  readonly keys: RecentKeys;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
}

/** Creates it, not begun. */
export function createKeyLearning({ keys, clock, crashPoint, logger }: KeyLearningDependencies): KeyLearning {
  let learning: Promise<void> | undefined;
  let failure: { readonly error: unknown } | undefined;

  async function learn(signal: AbortSignal): Promise<void> {
    await crashPoint(learnStep);
    const startedAt = performance.now();
    await keys.warmUp(clock.nowMs(), signal);
    const durationMs = Math.round(performance.now() - startedAt);
    logger.info({ durationMs, ...keys.size() }, 'loaded the recent keys');
  }

  return {
    begin(signal) {
      if (failure !== undefined) {
        const { error } = failure;
        failure = undefined;
        learning = undefined;
        throw error;
      }
      learning ??= learn(signal).catch((error: unknown) => {
        if (!signal.aborted) failure = { error };
      });
    },
    ended: async () => learning,
  };
}
