import type { Notice } from '../../lake/catalogue/catalogue-files.ts';
import type { Logger } from '../../runtime/logger.ts';
import { readToldNotices, toldTo, writeToldNotices, type ToldNotices } from '../../webhooks/told-notices.ts';
import { listWebhooks, type Webhook } from '../../webhooks/webhook-store.ts';
import { renderNotice } from './message.ts';
import { createSender, type SenderDependencies, type Sent } from './sender.ts';
import { isDue, longestPause, pauseAfter, type TellerOptions } from './teller.ts';

export interface NoticeTellerDependencies extends SenderDependencies {
  readonly logger: Logger;
}

/** Tells the webhooks of one account what is due, and writes down what came of it. */
export interface NoticeTeller {
  /**
   * `listNotices` gives those of the account's apps as they are now, newest first. Returns when the next try is due, Unix
   * milliseconds; infinity: nothing is left to tell. Errors: `record_damaged`, those of the disk.
   */
  tell(idAccount: number, listNotices: () => readonly Notice[]): Promise<number>;
}

/** A notice that no webhook has taken for so long is not sent any more. */
const tellForMs = 7 * 86_400_000;

/** What a webhook is still to be told, in the order in which it is: the oldest first, what it has not taken last. */
function listPending(
  { createdMs }: Webhook,
  { told, failed }: ToldNotices,
  notices: readonly Notice[],
  nowMs: number,
): Notice[] {
  const isTold = new Set(told);
  const wanted = notices.filter(({ id, foundAt }) => {
    const foundMs = Date.parse(foundAt);
    return createdMs <= foundMs && nowMs - foundMs < tellForMs && !isTold.has(id);
  });
  return wanted.toReversed().toSorted((a, b) => failed.indexOf(a.id) - failed.indexOf(b.id));
}

/** What came of a message, with those that are still to be told. */
function takeSent(
  { told, failed, failures }: ToldNotices,
  { id }: Notice,
  { state }: Sent,
  pending: readonly Notice[],
): Omit<ToldNotices, 'nextMs'> {
  const others = failed.filter((other) => other !== id && pending.some((notice) => notice.id === other));
  return state === 'waiting'
    ? { told, failed: [...others, id], failures: failures + 1 }
    : { told: [...told, id], failed: others, failures: 0 };
}

/** Creates the teller; what is under way when the signal aborts ends as if it had not been tried. */
export function createNoticeTeller(
  dependencies: NoticeTellerDependencies,
  options: TellerOptions,
  signal: AbortSignal,
): NoticeTeller {
  const { paths, clock, logger } = dependencies;
  const send = createSender(dependencies, options.timeoutMs, signal);

  return {
    async tell(idAccount, listNotices) {
      while (!signal.aborted) {
        // Read anew for each message: a webhook that was removed is told no more, nor what an erasure has taken.
        const { known: webhooks, damaged } = await listWebhooks(paths, idAccount);
        const known = await readToldNotices(paths.webhooks, idAccount);
        const nowMs = clock.nowMs();
        const waiting = webhooks.flatMap((webhook) => {
          const before = toldTo(known, webhook.idWebhook);
          const pending = listPending(webhook, before, listNotices(), nowMs);
          const [next] = pending;
          const nextMs = isDue(before.nextMs, nowMs, options) ? 0 : before.nextMs;
          return next === undefined ? [] : [{ webhook, before, pending, next, nextMs }];
        });
        const due = waiting.find(({ nextMs }) => nextMs <= nowMs);
        // One whose record cannot be read may be repaired.
        const againMs = damaged.length === 0 ? Infinity : nowMs + longestPause(options);
        if (due === undefined) return Math.min(againMs, ...waiting.map(({ nextMs }) => nextMs));
        const { webhook, before, pending, next } = due;
        const { idWebhook } = webhook;
        const sent = await send(webhook, renderNotice(next, idWebhook));
        if (signal.aborted && sent.state === 'waiting') break;
        const after = takeSent(before, next, sent, pending);
        const pauseMs = sent.state === 'waiting' ? pauseAfter(after.failures, options) : 0;
        const nextMs = pauseMs === 0 ? 0 : clock.nowMs() + pauseMs;
        const ids = [...webhooks.map((one) => one.idWebhook), ...damaged];
        const told = Object.fromEntries(ids.map((id) => [id, toldTo(known, id)]));
        await writeToldNotices(paths.webhooks, idAccount, { ...told, [idWebhook]: { ...after, nextMs } });
        if (sent.state === 'waiting')
          logger.warn(
            { idWebhook, idNotice: next.id, failures: after.failures, error: sent.lastError },
            'a webhook was not reached, will retry',
          );
      }
      return Infinity;
    },
  };
}
