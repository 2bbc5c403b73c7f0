/**
 * Tells the webhooks of an account that its exports have ended.
 *
 * In: requests that have ended. Out: one message for each webhook that was there then, at least once, under one id,
 * signed, tried again with growing pauses until it is taken or the request is gone.
 * Crash: who was told is written down after the message was taken, so a message may come twice; a request that nobody
 * was told of is found at the next start.
 */
import { describeError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import { isInProgress } from '../../reports/reports.ts';
import { listWebhooks } from '../../webhooks/webhook-store.ts';
import { createTeller, defaultTellerOptions, type TellerDependencies, type TellerOptions } from './teller.ts';

export interface Notifier extends Stoppable {
  /** Has a request looked at that may have ended, or whose webhooks are still to be told. */
  look(id: number): void;
  /** Has all requests of accounts with webhooks looked at that have ended: those that an earlier process has left. */
  lookAtAll(): Promise<void>;
}

/** Starts the notifier; nothing is looked at before it is asked for. */
export function startNotifier(
  dependencies: TellerDependencies,
  options: TellerOptions = defaultTellerOptions,
): Notifier {
  const { store, paths, clock, logger } = dependencies;
  const aborter = new AbortController();
  const { signal } = aborter;
  const teller = createTeller(dependencies, options, signal);
  const running = new Map<number, Promise<void>>();
  const longestMs = Math.max(...options.pausesMs);

  /** A record that cannot be read is met again, and said, when a request of its account is looked at. */
  async function hasWebhooks(idAccount: number): Promise<boolean> {
    return await listWebhooks(paths, idAccount).then(
      (webhooks) => webhooks.length > 0,
      () => true,
    );
  }

  async function run(id: number): Promise<void> {
    while (!signal.aborted) {
      const nextMs = await teller.tell(id).catch((error: unknown) => {
        logger.error({ idReport: id, error: describeError(error) }, 'webhooks of an export were not sent, will retry');
        return clock.nowMs() + longestMs;
      });
      if (nextMs === undefined) return;
      // A clock that was set back must not make it wait longer than the pause.
      await pause(Math.min(Math.max(nextMs - clock.nowMs(), 0), longestMs), signal);
    }
  }

  function look(id: number): void {
    if (signal.aborted || running.has(id)) return;
    running.set(
      id,
      run(id).finally(() => running.delete(id)),
    );
  }

  return {
    look,
    async lookAtAll() {
      const accounts = new Map<number, boolean>();
      for (const { id, idAccount } of store.list().filter((job) => !isInProgress(job))) {
        const has = accounts.get(idAccount) ?? (await hasWebhooks(idAccount));
        accounts.set(idAccount, has);
        if (has) look(id);
      }
    },
    async stop() {
      aborter.abort();
      await Promise.all(running.values());
    },
  };
}
