import { pause } from '../runtime/async/retry.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problems/problem.ts';

/** A running compactor. `failed` rejects when it cannot continue: the process ends, and a new one starts. */
export interface Compactor extends Stoppable {
  readonly failed: Promise<never>;
  facts(): { readonly problems: readonly Problem[]; readonly [fact: string]: unknown };
}

const retryEveryMs = 1000;

/**
 * Starts a compactor. After a foreign commit it reports that problem, and starts once the table is repaired: a restart
 * of the process would not help, and import and export need not wait. Errors: those of `start`, except
 * `foreign_commit`.
 */
export async function startWhenRepaired(start: () => Promise<Compactor>, logger: Logger): Promise<Compactor> {
  const tryStart = (): Promise<Compactor | AppError> =>
    start().catch((error: unknown) => {
      if (!isAppError(error, 'foreign_commit')) throw error;
      return error;
    });
  let current = await tryStart();
  if (!(current instanceof AppError)) return current;
  logger.error({ error: current.message }, 'lake has a foreign commit, compactor waits for its repair');
  const stopping = new AbortController();

  async function wait(): Promise<void> {
    while (current instanceof AppError) {
      await pause(retryEveryMs, stopping.signal);
      if (stopping.signal.aborted) return;
      current = await tryStart();
    }
    logger.info('lake repaired, compactor started');
  }

  const waiting = wait();
  return {
    failed: waiting.then(() => (current instanceof AppError ? Promise.reject(current) : current.failed)),
    async stop() {
      stopping.abort();
      await waiting.catch(() => undefined);
      if (!(current instanceof AppError)) await current.stop();
    },
    facts: () =>
      current instanceof AppError
        ? { problems: [{ code: 'foreign_commit', message: current.message, action: current.hint ?? '' }], warnings: [] }
        : current.facts(),
  };
}
