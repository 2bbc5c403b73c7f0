import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import { findWebhook, openWebhookSecret, type Webhook, type WebhookPaths } from '../../webhooks/webhook-store.ts';

type WebhookId = Pick<Webhook, 'idAccount' | 'idWebhook'>;

/** Webhooks that nothing can be told until somebody looks: their records, or what their secrets are sealed under. */
export interface WebhookFaults extends Stoppable {
  /** Takes in what a look at a webhook has met; undefined: nothing, or it is gone. */
  take(webhook: WebhookId, fault: string | undefined): void;
  notices(): readonly Problem[];
}

/** How soon it is seen that a damaged webhook was restored, or removed. */
const everyMs = 5000;

/** Starts it, knowing no fault; each is logged once, and looked at again until it is gone. */
export function startWebhookFaults(paths: WebhookPaths, logger: Logger): WebhookFaults {
  const faults = new Map<string, WebhookId & { readonly fault: string }>();

  function take({ idAccount, idWebhook }: WebhookId, fault: string | undefined): void {
    if (fault === undefined) faults.delete(idWebhook);
    else {
      if (faults.get(idWebhook)?.fault !== fault)
        logger.error({ idWebhook, error: fault }, 'a webhook gets no messages');
      faults.set(idWebhook, { idAccount, idWebhook, fault });
    }
  }

  async function look(known: WebhookId): Promise<void> {
    try {
      const webhook = await findWebhook(paths, known.idAccount, known.idWebhook);
      if (webhook !== undefined) await openWebhookSecret(paths, webhook);
      take(known, undefined);
    } catch (error) {
      if (!isAppError(error, 'record_damaged')) throw error;
      take(known, describeError(error));
    }
  }

  const lookAgain = (): Promise<void> | void =>
    faults.size === 0 ? undefined : Promise.all([...faults.values()].map(look)).then(() => undefined);
  const loop = startPollLoop(lookAgain, {
    everyMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'webhooks cannot be read now, will retry'),
  });

  return {
    take,
    stop: () => loop.stop(),
    notices: () =>
      [...faults.values()].map(({ idWebhook, fault }) => ({
        code: 'webhook_unreadable' as const,
        subject: idWebhook,
        what: `webhook ${idWebhook} gets no messages: ${fault}`,
        todo: 'Restore its record and keys/webhooks.key from one backup, or have a user of its account delete it and add it anew.',
      })),
  };
}
