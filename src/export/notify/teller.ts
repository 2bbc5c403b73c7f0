import type { Logger } from '../../runtime/logger.ts';
import { readDeliveries, writeDeliveries, type Delivery } from '../../reports/deliveries-file.ts';
import { isExpired, isInProgress, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { listWebhooks, type Webhook } from '../../webhooks/webhook-store.ts';
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

/** Tells the webhooks of one request what is due, and writes down what came of it. */
export interface Teller {
  /** Returns when the next try is due, Unix milliseconds; undefined: nobody is left to tell. */
  tell(id: number): Promise<number | undefined>;
}

/** How long to wait before the next try, after so many that have failed. */
export function pauseAfter(failures: number, { pausesMs }: TellerOptions): number {
  return pausesMs[Math.min(failures, pausesMs.length) - 1] ?? 0;
}

/** Each webhook that was there when the request ended, with what has come of it so far. */
function mergeDeliveries(job: ReportJob, webhooks: readonly Webhook[], known: readonly Delivery[]): Delivery[] {
  return webhooks
    .filter(({ createdMs }) => createdMs <= (job.finishedMs ?? 0))
    .map(
      ({ idWebhook }) =>
        known.find((delivery) => delivery.idWebhook === idWebhook) ?? {
          idWebhook,
          state: 'waiting',
          attempts: 0,
          nextMs: 0,
        },
    );
}

/** Creates the teller; what is under way when the signal aborts ends as if it had not been tried. */
export function createTeller(dependencies: TellerDependencies, options: TellerOptions, signal: AbortSignal): Teller {
  const { store, paths, clock, logger } = dependencies;
  const send = createSender(dependencies, options.timeoutMs, signal);

  async function attempt(job: ReportJob, webhook: Webhook, before: Delivery): Promise<Delivery> {
    const attempts = before.attempts + 1;
    const { idWebhook } = before;
    const sent = await send(webhook, renderMessage(job, idWebhook));
    if (sent.state !== 'waiting') return { idWebhook, attempts, nextMs: 0, ...sent };
    logger.warn(
      { idReport: job.id, idWebhook, attempts, error: sent.lastError },
      'a webhook was not reached, will retry',
    );
    return { idWebhook, attempts, nextMs: clock.nowMs() + pauseAfter(attempts, options), ...sent };
  }

  async function tell(id: number): Promise<number | undefined> {
    const job = await store.find(id);
    if (job === undefined || isInProgress(job) || isExpired(job, clock.nowMs())) return undefined;
    const webhooks = await listWebhooks(paths, job.idAccount);
    if (webhooks.length === 0) return undefined;
    const folder = store.folderOf(id);
    const known = await readDeliveries(folder);
    const deliveries = mergeDeliveries(job, webhooks, known);
    for (const [index, delivery] of deliveries.entries()) {
      const webhook = webhooks.find(({ idWebhook }) => idWebhook === delivery.idWebhook);
      if (webhook === undefined || delivery.state !== 'waiting' || delivery.nextMs > clock.nowMs()) continue;
      const after = await attempt(job, webhook, delivery);
      if (signal.aborted && after.state === 'waiting') return undefined;
      deliveries[index] = after;
      await writeDeliveries(folder, deliveries);
    }
    const waiting = deliveries.filter(({ state }) => state === 'waiting').map(({ nextMs }) => nextMs);
    return waiting.length === 0 ? undefined : Math.min(...waiting);
  }

  return { tell };
}
