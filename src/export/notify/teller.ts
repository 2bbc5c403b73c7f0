import { createKeyedSemaphore } from '../../runtime/async/semaphore.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { readDeliveries, writeDeliveries, type Delivery } from '../../reports/report-records.ts';
import { isExpired, isInProgress, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { findWebhook, type AccountWebhooks, type Webhook } from '../../webhooks/webhook-store.ts';
import { renderMessage } from './message.ts';
import { createSender, type SenderDependencies } from './sender.ts';

export interface TellerDependencies extends SenderDependencies {
  readonly store: ReportStore;
  readonly logger: Logger;
}

export interface TellerOptions {
  readonly timeoutMs: number;
  /** Pauses before the second try, the third and so on; the last one again and again. */
  readonly pausesMs: readonly number[];
}

export const defaultTellerOptions: TellerOptions = {
  timeoutMs: 10_000,
  pausesMs: [10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000],
};

/** Tells a webhook of a request what is due, and writes down what came of it. */
export interface Teller {
  /**
   * The ids of the webhooks of its account that are still to be told of a request, those with damaged records included.
   * `hasJustEnded`: where nothing is written down of it yet, all of them; otherwise those that were there by the clock.
   */
  listLeft(job: ReportJob, webhooks: AccountWebhooks, hasJustEnded: boolean): Promise<readonly string[]>;
  /** Returns when the next try is due, Unix milliseconds; undefined: the webhook is told, or is not to be. */
  tell(id: number, idWebhook: string, hasJustEnded: boolean): Promise<number | undefined>;
}

/** How long to wait before the next try, after so many that have failed. */
export function pauseAfter(failures: number, { pausesMs }: TellerOptions): number {
  return pausesMs[Math.min(failures, pausesMs.length) - 1] ?? 0;
}

/** The longest pause between two tries. */
export function longestPause({ pausesMs }: TellerOptions): number {
  return Math.max(...pausesMs);
}

/** Whether a try is due: also where it lies further ahead than any pause, because the clock was set back. */
export function isDue(nextMs: number, nowMs: number, options: TellerOptions): boolean {
  return nextMs <= nowMs || nextMs - nowMs > longestPause(options);
}

/**
 * Whether a webhook is to be told of a request. What has just ended is told to each that is there now, whatever the clocks
 * of those who added them showed; what an earlier process has left, to those that were there by the clock.
 */
function isWanted({ createdMs }: Webhook, job: ReportJob, hasJustEnded: boolean): boolean {
  return hasJustEnded || createdMs <= (job.finishedMs ?? 0);
}

/** Creates the teller; what is under way when the signal aborts ends as if it had not been tried. */
export function createTeller(dependencies: TellerDependencies, options: TellerOptions, signal: AbortSignal): Teller {
  const { store, paths, clock, logger, faults } = dependencies;
  const send = createSender(dependencies, options.timeoutMs, signal);
  const records = createKeyedSemaphore();

  async function attempt(job: ReportJob, webhook: Webhook, before: number): Promise<Delivery> {
    const attempts = before + 1;
    const { idWebhook } = webhook;
    const sent = await send(webhook, renderMessage(job, idWebhook));
    if (sent.state !== 'waiting') return { idWebhook, attempts, nextMs: 0, ...sent };
    logger.warn(
      { idReport: job.id, idWebhook, attempts, error: sent.lastError },
      'a webhook was not reached, will retry',
    );
    return { idWebhook, attempts, nextMs: clock.nowMs() + pauseAfter(attempts, options), ...sent };
  }

  async function keep(id: number, delivery: Delivery): Promise<void> {
    const folder = store.folderOf(id);
    await records.run(id, async () => {
      const others = (await readDeliveries(folder)).filter(({ idWebhook }) => idWebhook !== delivery.idWebhook);
      await writeDeliveries(folder, [...others, delivery]);
    });
  }

  /** The webhook; `damaged` where its record cannot be read now. */
  async function look(idAccount: number, idWebhook: string): Promise<Webhook | 'damaged' | undefined> {
    try {
      return await findWebhook(paths, idAccount, idWebhook);
    } catch (error) {
      if (!isAppError(error, 'record_damaged')) throw error;
      faults?.take({ idAccount, idWebhook }, describeError(error));
      return 'damaged';
    }
  }

  return {
    async listLeft(job, { known, damaged }, hasJustEnded) {
      if (known.length + damaged.length === 0) return [];
      const deliveries = await readDeliveries(store.folderOf(job.id));
      const isLeft = (idWebhook: string, isMeant: boolean): boolean => {
        const delivery = deliveries.find((other) => other.idWebhook === idWebhook);
        return delivery === undefined ? isMeant : delivery.state === 'waiting';
      };
      const isNew = hasJustEnded && deliveries.length === 0;
      const left = known.filter((webhook) => isLeft(webhook.idWebhook, isWanted(webhook, job, isNew)));
      return [...left.map(({ idWebhook }) => idWebhook), ...damaged.filter((idWebhook) => isLeft(idWebhook, true))];
    },
    async tell(id, idWebhook, hasJustEnded) {
      const job = await store.find(id);
      if (job === undefined || isInProgress(job) || isExpired(job, clock.nowMs())) return undefined;
      const webhook = await look(job.idAccount, idWebhook);
      if (webhook === undefined) return undefined;
      if (webhook === 'damaged') return clock.nowMs() + longestPause(options);
      const before = (await readDeliveries(store.folderOf(id))).find((other) => other.idWebhook === idWebhook);
      if (before === undefined ? !isWanted(webhook, job, hasJustEnded) : before.state !== 'waiting') return undefined;
      if (before !== undefined && !isDue(before.nextMs, clock.nowMs(), options)) return before.nextMs;
      const after = await attempt(job, webhook, before?.attempts ?? 0);
      if (signal.aborted && after.state === 'waiting') return undefined;
      await keep(id, after);
      return after.state === 'waiting' ? after.nextMs : undefined;
    },
  };
}
