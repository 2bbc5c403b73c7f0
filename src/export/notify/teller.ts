import { createSlots } from '../../runtime/async/slots.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError } from '../../runtime/errors.ts';
import { postOutside } from '../../runtime/http/outgoing-post.ts';
import type { OutgoingRules } from '../../runtime/http/outgoing-rules.ts';
import type { Logger } from '../../runtime/logger.ts';
import { readDeliveries, writeDeliveries, type Delivery } from '../../reports/deliveries-file.ts';
import { isExpired, isInProgress, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { listWebhooks, openWebhookSecret, type Webhook, type WebhookPaths } from '../../webhooks/webhook-store.ts';
import { renderMessage, signMessage } from './message.ts';

export interface TellerDependencies {
  readonly store: ReportStore;
  readonly paths: WebhookPaths;
  readonly rules: OutgoingRules;
  readonly clock: Clock;
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

/** Messages on their way at a time. */
const sendsAtOnce = 8;

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
export function createTeller(
  { store, paths, rules, clock, logger }: TellerDependencies,
  { timeoutMs, pausesMs }: TellerOptions,
  signal: AbortSignal,
): Teller {
  const slots = createSlots(sendsAtOnce);

  async function send(job: ReportJob, webhook: Webhook): Promise<number> {
    const { id, body } = renderMessage(job, webhook.idWebhook);
    const secret = await openWebhookSecret(paths, webhook);
    const headers = signMessage(secret, id, Math.floor(clock.nowMs() / 1000), body);
    const post = { url: new URL(webhook.url), headers, body, timeoutMs, signal };
    return await slots.run(() => postOutside(post, rules));
  }

  async function attempt(job: ReportJob, webhook: Webhook, before: Delivery): Promise<Delivery> {
    const attempts = before.attempts + 1;
    const { idWebhook } = before;
    let lastError: string;
    try {
      const status = await send(job, webhook);
      if (status >= 200 && status < 300) return { idWebhook, state: 'delivered', attempts, nextMs: 0 };
      lastError = `it answered ${status}`;
      // The receiver says that it is gone for good.
      if (status === 410) return { idWebhook, state: 'given_up', attempts, nextMs: 0, lastError };
    } catch (error) {
      lastError = describeError(error);
    }
    logger.warn({ idReport: job.id, idWebhook, attempts, error: lastError }, 'a webhook was not reached, will retry');
    const pauseMs = pausesMs[Math.min(attempts, pausesMs.length) - 1] ?? 0;
    return { idWebhook, state: 'waiting', attempts, nextMs: clock.nowMs() + pauseMs, lastError };
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
