/**
 * Tells the webhooks of an account that its exports have ended.
 *
 * In: requests that have ended. Out: one message for each webhook that was there then, at least once, under one id,
 * signed, tried again with growing pauses until it is taken or the request is gone. A webhook that does not answer holds up
 * no other.
 * Crash: who was told is written down after the message was taken, so a message may come twice; a request that nobody
 * was told of is found at the next start.
 */
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import { isExpired, isInProgress, type ReportJob } from '../../reports/reports.ts';
import { listWebhooks, type AccountWebhooks } from '../../webhooks/webhook-store.ts';
import {
  createTeller,
  defaultTellerOptions,
  longestPause,
  pauseAfter,
  type TellerDependencies,
  type TellerOptions,
} from './teller.ts';
import { startWebhookFaults } from './webhook-faults.ts';

export interface Notifier extends Stoppable {
  /** Has the webhooks of a request told that has just ended. */
  look(id: number): void;
  /** Has all requests looked at that have ended: of some an earlier process may not have told all. */
  lookAtAll(): Promise<void>;
  /** Webhooks that nothing can be told. */
  notices(): readonly Problem[];
}

/** Requests of earlier processes that are looked at side by side. */
const looksAtOnce = 4;

/** Starts the notifier; nothing is looked at before it is asked for. */
export function startNotifier(
  dependencies: Omit<TellerDependencies, 'faults'>,
  options: TellerOptions = defaultTellerOptions,
): Notifier {
  const { store, paths, clock, logger } = dependencies;
  const aborter = new AbortController();
  const { signal } = aborter;
  const faults = startWebhookFaults(paths, logger);
  const teller = createTeller({ ...dependencies, faults }, options, signal);
  /** What is being done, by the request, or the request and the webhook. */
  const running = new Map<string, Promise<void>>();

  async function repeat(id: number, step: () => Promise<number | undefined>): Promise<void> {
    for (let failures = 0; !signal.aborted;) {
      let nextMs: number | undefined;
      try {
        nextMs = await step();
        failures = 0;
      } catch (error) {
        failures += 1;
        logger.error({ idReport: id, error: describeError(error) }, 'webhooks of an export were not sent, will retry');
        nextMs = clock.nowMs() + pauseAfter(failures, options);
      }
      if (nextMs === undefined) return;
      // A clock that was set back must not make it wait longer than the pause.
      await pause(Math.min(Math.max(nextMs - clock.nowMs(), 0), longestPause(options)), signal);
    }
  }

  /** Repeats a step until nothing is left to do, or this is stopped; does nothing while it runs already. */
  function start(key: string, id: number, step: () => Promise<number | undefined>): void {
    if (signal.aborted || running.has(key)) return;
    running.set(
      key,
      repeat(id, step).finally(() => running.delete(key)),
    );
  }

  async function follow(job: ReportJob, webhooks: AccountWebhooks, hasJustEnded: boolean): Promise<void> {
    for (const idWebhook of await teller.listLeft(job, webhooks, hasJustEnded))
      start(`${job.id} ${idWebhook}`, job.id, () => teller.tell(job.id, idWebhook, hasJustEnded));
  }

  function look(id: number, hasJustEnded: boolean): void {
    start(String(id), id, async () => {
      const job = await store.find(id);
      if (job !== undefined && !isInProgress(job))
        await follow(job, await listWebhooks(paths, job.idAccount), hasJustEnded);
      return undefined;
    });
  }

  return {
    look: (id) => look(id, true),
    async lookAtAll() {
      const nowMs = clock.nowMs();
      const ended = store.list().filter((job) => !isInProgress(job) && !isExpired(job, nowMs));
      const accounts = new Map<number, Promise<AccountWebhooks>>();
      const listOnce = (idAccount: number): Promise<AccountWebhooks> => {
        const listed = accounts.get(idAccount) ?? listWebhooks(paths, idAccount);
        accounts.set(idAccount, listed);
        return listed;
      };
      await inParallel(ended, looksAtOnce, async (job) => {
        if (signal.aborted) return;
        // What cannot be read now is looked at again and again.
        await listOnce(job.idAccount)
          .then((webhooks) => follow(job, webhooks, false))
          .catch(() => look(job.id, false));
      });
    },
    notices: () => faults.notices(),
    async stop() {
      aborter.abort();
      await Promise.all([faults.stop(), ...running.values()]);
    },
  };
}
