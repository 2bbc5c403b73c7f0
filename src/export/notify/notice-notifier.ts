/**
 * Sends the catalogue notices of an account's apps, and the stops of its schedules, to its webhooks.
 *
 * In: the notices of the lake (lake/catalogue/catalogue-files.ts); stopped schedules. Out: one message per webhook that
 * existed when it was found, at least once, under one id, signed, retried with backoff for a week, or until the schedule
 * is resumed. A webhook that hangs delays its own account alone.
 * Crash: a delivery is recorded after it, so a message may be sent twice; the next start finds the notices without one.
 */
import type { AccessReader } from '../../access/access.ts';
import { findNoticesTag, readNotices, type Notice } from '../../lake/catalogue/catalogue-files.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import {
  openWebhooks,
  readDeliveredNotices,
  deliveredTo,
  writeDeliveredNotices,
  type DeliveredNotices,
  type Webhook,
} from '../../webhooks/webhook-store.ts';
import type { ScheduleStop } from '../../schedules/schedules.ts';
import { renderNotice, renderStop, stopId, type Message } from './message.ts';
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
  /** Returns the schedules that are stopped now. */
  readonly listStops?: () => readonly ScheduleStop[];
}

/** A notice, or the stop of a schedule. */
interface Announcement {
  readonly id: string;
  readonly idAccount: number;
  readonly foundMs: number;
  readonly render: (idWebhook: string) => Message;
}

interface NoticeNotifierOptions extends DeliveryOptions {
  readonly everyMs: number;
}

const defaultOptions: NoticeNotifierOptions = { ...defaultDeliveryOptions, everyMs: 5000 };
/** Maximum time of retries of a notice, ms. */
const deliveryWindowMs = 7 * 86_400_000;

function toAnnouncement(notice: Notice, idAccount: number | undefined): readonly Announcement[] {
  if (idAccount === undefined) return [];
  const render = (idWebhook: string): Message => renderNotice(notice, idWebhook);
  return [{ id: notice.id, idAccount, foundMs: Date.parse(notice.foundAt), render }];
}

function stopToAnnouncement(stop: ScheduleStop): Announcement {
  const render = (idWebhook: string): Message => renderStop(stop, idWebhook);
  return { id: stopId(stop), idAccount: stop.idAccount, foundMs: stop.atMs, render };
}

/** Returns what to send to a webhook: the oldest first, what failed last. */
function listPending(
  { createdMs }: Webhook,
  { told, failed }: DeliveredNotices,
  announcements: readonly Announcement[],
  nowMs: number,
): Announcement[] {
  const isTold = new Set(told);
  const wanted = announcements.filter(
    ({ id, foundMs }) => createdMs <= foundMs && nowMs - foundMs < deliveryWindowMs && !isTold.has(id),
  );
  return wanted.toReversed().toSorted((a, b) => failed.indexOf(a.id) - failed.indexOf(b.id));
}

function recordSent(
  { told, failed, failures }: DeliveredNotices,
  { id }: Announcement,
  { state }: AttemptResult,
  pending: readonly Announcement[],
): Omit<DeliveredNotices, 'nextMs'> {
  const others = failed.filter((other) => other !== id && pending.some((one) => one.id === other));
  return state === 'waiting'
    ? { told, failed: [...others, id], failures: failures + 1 }
    : { told: [...told, id], failed: others, failures: 0 };
}

/** Creates what sends the next message that is due for an account. */
function createAccountDelivery(
  { paths, clock, logger, ...dependencies }: NoticeNotifierDependencies,
  options: DeliveryOptions,
  signal: AbortSignal,
  list: () => readonly Announcement[],
): (idAccount: number) => Promise<number | undefined> {
  const send = createSender({ paths, clock, logger, ...dependencies }, options.timeoutMs, signal);
  /** Returns when the next one is; undefined if none is left. */
  return async (idAccount) => {
    // Read for each message: a removed webhook or an erased notice is not sent.
    const { known: webhooks, damaged } = await openWebhooks(paths).list(idAccount);
    const known = await readDeliveredNotices(paths.webhooks, idAccount);
    const own = list()
      .filter((one) => one.idAccount === idAccount)
      .toSorted((a, b) => b.foundMs - a.foundMs);
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
    const attemptResult = await send(webhook, next.render(idWebhook));
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
  };
}

/** Starts the notifier. An attempt that a stop interrupts is not recorded. */
export function startNoticeNotifier(dependencies: NoticeNotifierDependencies, options = defaultOptions): Stoppable {
  const { lakeDir, access, clock, logger, listStops = () => [] } = dependencies;
  const aborter = new AbortController();
  const { signal } = aborter;
  const loops = createRetryLoops(clock, options, signal, (idAccount, error) =>
    logger.error({ idAccount, error: describeError(error) }, 'cannot send notices to webhooks, will retry'),
  );
  let seen: string | undefined;
  let seenStops = '';
  let notices: readonly Notice[] = [];

  const accountOf = (notice: Notice): number | undefined => access.current().findApp(notice.idApp)?.idAccount;
  const toAnnouncements = (): readonly Announcement[] => [
    ...notices.flatMap((notice) => toAnnouncement(notice, accountOf(notice))),
    ...listStops().map(stopToAnnouncement),
  ];

  const attemptDelivery = createAccountDelivery(dependencies, options, signal, toAnnouncements);

  async function readAgain(tag: string): Promise<void> {
    notices = await readNotices(lakeDir);
    // The account of an app may be unknown for now.
    if (!access.mayMissApps()) seen = tag;
  }

  async function check(): Promise<void> {
    const tag = await findNoticesTag(lakeDir);
    const stops = listStops().map(stopId).toSorted().join(' ');
    if (tag === seen && stops === seenStops) return loops.wakeDue();
    if (tag !== seen) await readAgain(tag);
    seenStops = stops;
    for (const idAccount of new Set(toAnnouncements().map((one) => one.idAccount)))
      loops.start(idAccount, () => attemptDelivery(idAccount));
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
