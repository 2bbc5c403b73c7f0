import type { Problem } from '../../runtime/conditions/problem.ts';
import type { Logger } from '../../runtime/logger.ts';

/** Webhooks that nothing can be told until somebody looks: their records, or what their secrets are sealed under. */
export interface WebhookFaults {
  /** Takes in what a look at a webhook has met; undefined: nothing, or it is gone. */
  take(idWebhook: string, fault: string | undefined): void;
  notices(): readonly Problem[];
}

/** Creates it, knowing no fault; each is logged once. */
export function createWebhookFaults(logger: Logger): WebhookFaults {
  const faults = new Map<string, string>();
  return {
    take(idWebhook, fault) {
      if (fault === undefined) faults.delete(idWebhook);
      else {
        if (faults.get(idWebhook) !== fault) logger.error({ idWebhook, error: fault }, 'a webhook gets no messages');
        faults.set(idWebhook, fault);
      }
    },
    notices: () =>
      [...faults].map(([idWebhook, fault]) => ({
        code: 'webhook_unreadable' as const,
        subject: idWebhook,
        what: `webhook ${idWebhook} gets no messages: ${fault}`,
        todo: 'Restore its record and keys/webhooks.key from one backup, or have a user of its account delete it and add it anew.',
      })),
  };
}
