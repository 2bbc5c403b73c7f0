/**
 * Sends the catalogue notices of an account's apps to its webhooks.
 *
 * In: the notices of the lake (lake/catalogue/catalogue-files.ts). Out: one message per webhook that existed when a notice
 * was found, at least once, under one id, signed, retried with backoff for a week. A webhook that hangs delays its own
 * account alone.
 * Crash: a delivery is recorded after it, so a message may be sent twice; the next start finds the notices without one.
 */
import type { AccessReader } from '../../access/access.ts';
import { findNoticesTag, readNotices, type Notice } from '../../lake/catalogue/catalogue-files.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import {
  listWebhooks,
  readDeliveredNotices,
  deliveredTo,
  writeDeliveredNotices,
  type DeliveredNotices,
  type Webhook,
} from '../../webhooks/webhook-store.ts';
import { renderNotice } from './message.ts';
import { createSender, type WebhookSenderDependencies, type AttemptResult } from './sender.ts';
import {
  createRetryLoops,
  defaultDeliveryOptions,
  isAttemptDue,
  maxRetryDelay,
  retryDelayAfter,
  type DeliveryOptions,
} from './retry-schedule.ts';

interface NoticeNotifierDependencies extends WebhookSenderDependencies {
  readonly lakeDir: string;
  readonly access: AccessReader;
  readonly logger: Logger;
}

interface NoticeNotifierOptions extends DeliveryOptions {
  readonly everyMs: number;
}

const defaultOptions: NoticeNotifierOptions = { ...defaultDeliveryOptions, everyMs: 5000 };
/** Maximum time of retries of a notice, ms. */
const deliveryWindowMs = 7 * 86_400_000;

/** Returns the notices to send to a webhook: the oldest first, those that failed last. */
function listPending(
  { createdMs }: Webhook,
  { told, failed }: DeliveredNotices,
  notices: readonly Notice[],
  nowMs: number,
): Notice[] {
  const isTold = new Set(told);
  const wanted = notices.filter(({ id, foundAt }) => {
    const foundMs = Date.parse(foundAt);
    return createdMs <= foundMs && nowMs - foundMs < deliveryWindowMs && !isTold.has(id);
  });
  return wanted.toReversed().toSorted((a, b) => failed.indexOf(a.id) - failed.indexOf(b.id));
}

function recordSent(
  { told, failed, failures }: DeliveredNotices,
  { id }: Notice,
  { state }: AttemptResult,
  pending: readonly Notice[],
): Omit<DeliveredNotices, 'nextMs'> {
  const others = failed.filter((other) => other !== id && pending.some((notice) => notice.id === other));
  return state === 'waiting'
    ? { told, failed: [...others, id], failures: failures + 1 }
    : { told: [...told, id], failed: others, failures: 0 };
}

/** Starts the notifier. An attempt that a stop interrupts is not recorded. */
export function startNoticeNotifier(dependencies: NoticeNotifierDependencies, options = defaultOptions): Stoppable {
  const { lakeDir, access, paths, clock, logger } = dependencies;
  const aborter = new AbortController();
  const { signal } = aborter;
  const send = createSender(dependencies, options.timeoutMs, signal);
  const loops = createRetryLoops(clock, options, signal, (idAccount, error) =>
    logger.error({ idAccount, error: describeError(error) }, 'cannot send notices to webhooks, will retry'),
  );
  let seen: string | undefined;
  let notices: readonly Notice[] = [];

  const accountOf = ({ idApp }: Notice): number | undefined => access.current().findApp(idApp)?.idAccount;

  /** Sends the next message that is due for an account; returns when the next one is, undefined if none is left. */
  async function attemptDelivery(idAccount: number): Promise<number | undefined> {
    // Read for each message: a removed webhook or an erased notice is not sent.
    const { known: webhooks, damaged } = await listWebhooks(paths, idAccount);
    const known = await readDeliveredNotices(paths.webhooks, idAccount);
    const own = notices.filter((notice) => accountOf(notice) === idAccount);
    const nowMs = clock.nowMs();
    const waiting = webhooks.flatMap((webhook) => {
      const before = deliveredTo(known, webhook.idWebhook);
      const pending = listPending(webhook, before, own, nowMs);
      const [next] = pending;
      const nextMs = isAttemptDue(before.nextMs, nowMs, options) ? 0 : before.nextMs;
      return next === undefined ? [] : [{ webhook, before, pending, next, nextMs }];
    });
    const due = waiting.find(({ nextMs }) => nextMs <= nowMs);
    if (due === undefined) {
      const againMs = damaged.length === 0 ? Infinity : nowMs + maxRetryDelay(options);
      const nextMs = Math.min(againMs, ...waiting.map((one) => one.nextMs));
      return nextMs === Infinity ? undefined : nextMs;
    }
    const { webhook, before, pending, next } = due;
    const { idWebhook } = webhook;
    const attemptResult = await send(webhook, renderNotice(next, idWebhook));
    const hasFailed = attemptResult.state === 'waiting';
    if (signal.aborted && hasFailed) return undefined;
    const after = recordSent(before, next, attemptResult, pending);
    const nextMs = hasFailed ? clock.nowMs() + retryDelayAfter(after.failures, options) : 0;
    const ids = [...webhooks.map((one) => one.idWebhook), ...damaged];
    const delivered = Object.fromEntries(ids.map((id) => [id, deliveredTo(known, id)]));
    await writeDeliveredNotices(paths.webhooks, idAccount, { ...delivered, [idWebhook]: { ...after, nextMs } });
    if (hasFailed)
      logger.warn(
        { idWebhook, idNotice: next.id, failures: after.failures, error: attemptResult.lastError },
        'webhook delivery failed, will retry',
      );
    return nowMs;
  }

  async function readAgain(tag: string): Promise<void> {
    notices = await readNotices(lakeDir);
    // The account of an app may be unknown for now.
    if (!access.mayMissApps()) seen = tag;
    for (const idAccount of new Set(notices.map(accountOf)))
      if (idAccount !== undefined) loops.start(idAccount, () => attemptDelivery(idAccount));
  }

  async function check(): Promise<void> {
    const tag = await findNoticesTag(lakeDir);
    if (tag !== seen) return await readAgain(tag);
    loops.wakeDue();
  }

  const loop = startPollLoop(check, {
    everyMs: options.everyMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'cannot read notices, will retry'),
  });
  return {
    async stop() {
      aborter.abort();
      await loop.stop();
      await loops.ended();
    },
  };
}
