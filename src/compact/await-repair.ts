import { isAppError, type AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { pause } from '../runtime/async/retry.ts';
import type { Compact } from './compact.ts';

const retryEveryMs = 1000;

/** Starts, or returns the error that another engine's commit is. */
async function tryStart(
  start: () => Promise<Compact>,
): Promise<{ readonly compact: Compact } | { readonly foreign: AppError }> {
  try {
    return { compact: await start() };
  } catch (error) {
    if (isAppError(error, 'foreign_commit')) return { foreign: error };
    throw error;
  }
}

/**
 * Starts a compactor, also on a table that another engine has changed while none ran: then it waits, with that as its
 * problem, and begins its work once the table is repaired. The process would not get better by being started again, and
 * import and export need not wait with it. Errors: those of `start`, but for `foreign_commit`.
 */
export async function startWhenRepaired(start: () => Promise<Compact>, logger: Logger): Promise<Compact> {
  const first = await tryStart(start);
  if ('compact' in first) return first.compact;
  logger.error({ error: first.foreign.message }, 'compactor waits for the lake to be repaired');
  const stopping = new AbortController();
  let { foreign } = first;
  let compact: Compact | undefined;

  async function wait(): Promise<void> {
    for (;;) {
      await pause(retryEveryMs, stopping.signal);
      if (stopping.signal.aborted) return;
      const next = await tryStart(start);
      if ('compact' in next) {
        compact = next.compact;
        logger.info('lake is repaired, compactor goes on');
        return;
      }
      ({ foreign } = next);
    }
  }

  const waiting = wait();
  return {
    failed: waiting.then(() => compact?.failed ?? Promise.reject(foreign)),
    async stop() {
      stopping.abort();
      await waiting.catch(() => undefined);
      await compact?.stop();
    },
    facts: () =>
      compact?.facts() ?? {
        problems: [{ code: 'foreign_commit', what: foreign.message, todo: foreign.hint ?? '' }],
        notices: [],
      },
  };
}
