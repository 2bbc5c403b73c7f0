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
  /**
   * Begins, unless it has begun, and anew where it has failed. Throws what it failed with last, again and again until it
   * has loaded them: so a failure that stays is one trouble, however long each try takes.
   */
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
      learning ??= learn(signal).then(
        () => {
          failure = undefined;
        },
        (error: unknown) => {
          learning = undefined;
          if (!signal.aborted) failure = { error };
        },
      );
      if (failure !== undefined) throw failure.error;
    },
    ended: async () => learning,
  };
}
