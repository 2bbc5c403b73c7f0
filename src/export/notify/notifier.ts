/**
 * Notifies the webhooks of an account that its exports have ended.
 *
 * In: export requests that have ended. Out: one message per webhook that existed then, at least once, under one id,
 * signed, retried with backoff until it is delivered or the request is deleted. A webhook that hangs delays no other.
 * Crash: a delivery is recorded after it, so a message may repeat; the next start finds requests without a record.
 */
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { createKeyedSemaphore } from '../../runtime/async/semaphore.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { AccountList } from '../../runtime/store/account-records.ts';
import type { Delivery } from '../../reports/report-records.ts';
import { isExpired, isInProgress, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { openWebhooks, type Webhook } from '../../webhooks/webhook-store.ts';
import { renderMessage } from './message.ts';
import { createSender, startBrokenWebhookLog, type WebhookSenderDependencies } from './sender.ts';
import {
  createRetryLoops,
  defaultDeliveryOptions,
  isAttemptDue,
  maxRetryDelay,
  retryDelayAfter,
  type DeliveryOptions,
} from './retry-schedule.ts';

export interface NotifierDependencies extends Omit<WebhookSenderDependencies, 'brokenWebhooks'> {
  readonly store: ReportStore;
}

/** Maximum concurrent checks of requests that ended before this process started. */
const maxConcurrentChecks = 4;

/**
 * Reports whether a webhook is notified of a request: every webhook if the request has just ended, otherwise those that
 * were created before its end.
 */
function isWanted({ createdMs }: Webhook, { finishedMs = 0 }: ReportJob, hasJustEnded: boolean): boolean {
  return hasJustEnded || createdMs <= finishedMs;
}

/**
 * Creates the function that notifies one webhook of a request. It returns the time of the next attempt; undefined if
 * the webhook is notified or need not be. An attempt that a stop interrupts is not recorded.
 */
function createExportDelivery(
  dependencies: NotifierDependencies & { readonly brokenWebhooks: ReturnType<typeof startBrokenWebhookLog> },
  options: DeliveryOptions,
  signal: AbortSignal,
): (id: number, idWebhook: string, hasJustEnded: boolean) => Promise<number | undefined> {
  const { store, paths, clock, logger, brokenWebhooks } = dependencies;
  const send = createSender(dependencies, options.timeoutMs, signal);
  const records = createKeyedSemaphore();

  async function attempt(job: ReportJob, webhook: Webhook, before: number): Promise<Delivery> {
    const attempts = before + 1;
    const { idWebhook } = webhook;
    const attemptResult = await send(webhook, renderMessage(job, idWebhook));
    if (attemptResult.state !== 'waiting') return { idWebhook, attempts, nextMs: 0, ...attemptResult };
    const about = { idReport: job.id, idWebhook, attempts, error: attemptResult.lastError };
    logger.warn(about, 'webhook delivery failed, will retry');
    return { idWebhook, attempts, nextMs: clock.nowMs() + retryDelayAfter(attempts, options), ...attemptResult };
  }

  async function recordDelivery(id: number, delivery: Delivery): Promise<void> {
    await records.run(id, async () => {
      const others = (await store.readDeliveries(id)).filter(({ idWebhook }) => idWebhook !== delivery.idWebhook);
      await store.writeDeliveries(id, [...others, delivery]);
    });
  }

  async function findOrDamaged(idAccount: number, idWebhook: string): Promise<Webhook | 'damaged' | undefined> {
    try {
      return await openWebhooks(paths).find(idAccount, idWebhook);
    } catch (error) {
      if (!isAppError(error, 'record_damaged')) throw error;
      brokenWebhooks.take({ idAccount, idWebhook }, describeError(error));
      return 'damaged';
    }
  }

  return async (id, idWebhook, hasJustEnded) => {
    const job = await store.find(id);
    if (job === undefined || isInProgress(job) || isExpired(job, clock.nowMs())) return undefined;
    const webhook = await findOrDamaged(job.idAccount, idWebhook);
    if (webhook === undefined) return undefined;
    if (webhook === 'damaged') return clock.nowMs() + maxRetryDelay(options);
    const before = (await store.readDeliveries(id)).find((other) => other.idWebhook === idWebhook);
    if (before === undefined ? !isWanted(webhook, job, hasJustEnded) : before.state !== 'waiting') return undefined;
    if (before !== undefined && !isAttemptDue(before.nextMs, clock.nowMs(), options)) return before.nextMs;
    const after = await attempt(job, webhook, before?.attempts ?? 0);
    if (signal.aborted && after.state === 'waiting') return undefined;
    await recordDelivery(id, after);
    return after.state === 'waiting' ? after.nextMs : undefined;
  };
}

/** Starts the notifier, which waits for its first request. */
export function startNotifier(dependencies: NotifierDependencies, options = defaultDeliveryOptions) {
  const { store, paths, clock, logger } = dependencies;
  const aborter = new AbortController();
  const { signal } = aborter;
  const brokenWebhooks = startBrokenWebhookLog(dependencies);
  const attemptDelivery = createExportDelivery({ ...dependencies, brokenWebhooks }, options, signal);
  const loops = createRetryLoops(clock, options, signal, (key, error) => {
    const idReport = Number.parseInt(String(key), 10);
    logger.error({ idReport, error: describeError(error) }, 'cannot notify webhooks of an export, will retry');
  });

  /** Starts a loop for each webhook not yet notified of a request. A damaged one gets a loop: it may be repaired. */
  async function startDeliveries(
    job: ReportJob,
    { known, damaged }: AccountList<Webhook>,
    hasJustEnded: boolean,
  ): Promise<void> {
    if (known.length + damaged.length === 0) return;
    const deliveries = await store.readDeliveries(job.id);
    const isNew = hasJustEnded && deliveries.length === 0;
    const isLeft = (id: string, isMeant: boolean): boolean => {
      const delivery = deliveries.find(({ idWebhook }) => idWebhook === id);
      return delivery === undefined ? isMeant : delivery.state === 'waiting';
    };
    const left = known.filter((webhook) => isLeft(webhook.idWebhook, isWanted(webhook, job, isNew)));
    for (const id of [...left.map(({ idWebhook }) => idWebhook), ...damaged.filter((one) => isLeft(one, true))])
      loops.start(`${job.id} ${id}`, () => attemptDelivery(job.id, id, hasJustEnded));
  }

  function deliver(id: number, hasJustEnded: boolean): void {
    loops.start(id, async () => {
      const job = await store.find(id);
      if (job !== undefined && !isInProgress(job))
        await startDeliveries(job, await openWebhooks(paths).list(job.idAccount), hasJustEnded);
      return undefined;
    });
  }

  return {
    deliver: (id: number): void => deliver(id, true),
    /** Notifies the webhooks that earlier processes may have missed. */
    async deliverMissed(): Promise<void> {
      const nowMs = clock.nowMs();
      const ended = store.list().filter((job) => !isInProgress(job) && !isExpired(job, nowMs));
      const accounts = new Map<number, Promise<AccountList<Webhook>>>();
      const listOnce = (idAccount: number): Promise<AccountList<Webhook>> => {
        const listed = accounts.get(idAccount) ?? openWebhooks(paths).list(idAccount);
        accounts.set(idAccount, listed);
        return listed;
      };
      await inParallel(ended, maxConcurrentChecks, async (job) => {
        if (signal.aborted) return;
        await listOnce(job.idAccount)
          .then((webhooks) => startDeliveries(job, webhooks, false))
          .catch(() => deliver(job.id, false));
      });
    },
    notices: (): readonly Problem[] => brokenWebhooks.notices(),
    async stop(): Promise<void> {
      aborter.abort();
      await Promise.all([brokenWebhooks.stop(), loops.ended()]);
    },
  };
}
