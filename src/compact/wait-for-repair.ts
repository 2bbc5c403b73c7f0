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

/** Describes a compactor that waits: a foreign commit is a problem, another host's compactor is not. */
function describeWaiting({ code, message, hint }: AppError): ReturnType<Compactor['facts']> {
  if (code === 'standby') return { standby: true, problems: [], warnings: [] };
  return { problems: [{ code: 'foreign_commit', message, action: hint ?? '' }], warnings: [] };
}

/**
 * Starts a compactor. After a foreign commit it reports that problem, and starts once the table is repaired: a restart
 * of the process would not help, and import and export need not wait. It also waits while the compactor of another host
 * works. Errors: those of `start`, except `foreign_commit` and `standby`.
 */
export async function startWhenRepaired(start: () => Promise<Compactor>, logger: Logger): Promise<Compactor> {
  const tryStart = (): Promise<Compactor | AppError> =>
    start().catch((error: unknown) => {
      if (!isAppError(error, 'foreign_commit') && !isAppError(error, 'standby')) throw error;
      return error;
    });
  let current = await tryStart();
  if (!(current instanceof AppError)) return current;
  if (current.code === 'standby') logger.info({}, 'the compactor of another host works, this one is on standby');
  else logger.error({ error: current.message }, 'lake has a foreign commit, compactor waits for its repair');
  const stopping = new AbortController();

  async function wait(): Promise<void> {
    while (current instanceof AppError) {
      await pause(retryEveryMs, stopping.signal);
      if (stopping.signal.aborted) return;
      current = await tryStart();
    }
    logger.info('compactor started');
  }

  const waiting = wait();
  return {
    failed: waiting.then(() => (current instanceof AppError ? Promise.reject(current) : current.failed)),
    async stop() {
      stopping.abort();
      await waiting.catch(() => undefined);
      if (!(current instanceof AppError)) await current.stop();
    },
    facts: () => (current instanceof AppError ? describeWaiting(current) : current.facts()),
  };
}
