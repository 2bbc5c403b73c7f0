import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { createKeyedSemaphore } from '../../runtime/async/semaphore.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import { postToUntrustedUrl } from '../../runtime/http/post-untrusted.ts';
import type { EgressPolicy } from '../../runtime/http/egress-policy.ts';
import type { Logger } from '../../runtime/logger.ts';
import { recordAttempt, removeDeliveryLog } from '../../webhooks/delivery-log.ts';
import { openWebhooks, decryptWebhookSecrets, type Webhook, type WebhookPaths } from '../../webhooks/webhook-store.ts';
import { signMessage, type Message } from './message.ts';

type WebhookId = Pick<Webhook, 'idAccount' | 'idWebhook'>;

/** Interval of reading a damaged webhook again, ms. */
const faultsEveryMs = 5000;

/**
 * Starts to track webhooks with unreadable records or secrets. Each is logged once, and read again until it is repaired
 * or removed.
 */
export function startBrokenWebhookLog({ paths, clock, logger }: WebhookSenderDependencies) {
  const brokenWebhooks = new Map<string, WebhookId & { readonly error: string }>();

  /** Sets or clears the fault of a webhook. */
  function take({ idAccount, idWebhook }: WebhookId, error: string | undefined): void {
    if (error === undefined) {
      brokenWebhooks.delete(idWebhook);
      return;
    }
    if (brokenWebhooks.get(idWebhook)?.error !== error)
      logger.error({ idWebhook, error }, 'cannot read webhook, will retry');
    brokenWebhooks.set(idWebhook, { idAccount, idWebhook, error });
  }

  async function check(known: WebhookId): Promise<void> {
    try {
      const webhook = await openWebhooks(paths).find(known.idAccount, known.idWebhook);
      if (webhook !== undefined) await decryptWebhookSecrets(paths, webhook, clock.nowMs());
      take(known, undefined);
    } catch (error) {
      if (!isAppError(error, 'record_damaged')) throw error;
      take(known, describeError(error));
    }
  }

  const checkAll = (): Promise<void> | void =>
    brokenWebhooks.size === 0 ? undefined : Promise.all([...brokenWebhooks.values()].map(check)).then(() => undefined);
  const loop = startPollLoop(checkAll, {
    everyMs: faultsEveryMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'cannot read webhooks, will retry'),
  });

  return {
    take,
    stop: (): Promise<void> => loop.stop(),
    notices: (): readonly Problem[] =>
      [...brokenWebhooks.values()].map(({ idWebhook, error }) => ({
        code: 'webhook_unreadable' as const,
        subject: idWebhook,
        message: `webhook ${idWebhook} receives no messages: ${error}`,
        action:
          'Restore its record and keys/webhooks.key from the same backup, or ask a user of its account to delete it and create it again.',
      })),
  };
}

export interface WebhookSenderDependencies {
  readonly paths: WebhookPaths;
  readonly rules: EgressPolicy;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly brokenWebhooks?: ReturnType<typeof startBrokenWebhookLog>;
}

/** The result of an attempt: delivered; given up, since the receiver was removed; or to be sent again. */
export type AttemptResult =
  | { readonly state: 'delivered' }
  | { readonly state: 'given_up' | 'waiting'; readonly lastError: string };

/** The record of an attempt. */
interface AttemptNote {
  readonly status?: number;
  readonly problem?: string;
}

/** Messages sent to one webhook at a time; a receiver that hangs delays no other. */
const sendsAtOnce = 2;

/** Creates the sender of signed messages. An abort of the signal ends attempts; a failure is a result. */
export function createSender(
  { paths, rules, clock, logger, brokenWebhooks }: WebhookSenderDependencies,
  timeoutMs: number,
  signal: AbortSignal,
): (webhook: Webhook, message: Message) => Promise<AttemptResult> {
  const slots = createKeyedSemaphore(sendsAtOnce);

  async function openSecrets(webhook: Webhook): Promise<readonly string[]> {
    try {
      const secrets = await decryptWebhookSecrets(paths, webhook, clock.nowMs());
      brokenWebhooks?.take(webhook, undefined);
      return secrets;
    } catch (error) {
      if (isAppError(error, 'record_damaged')) brokenWebhooks?.take(webhook, describeError(error));
      throw error;
    }
  }

  /** Returns the status of the response; undefined if the webhook was removed while the message waited. */
  async function post({ idAccount, idWebhook }: Webhook, { id, body }: Message): Promise<number | undefined> {
    signal.throwIfAborted();
    const webhook = await openWebhooks(paths).find(idAccount, idWebhook);
    if (webhook === undefined) return undefined;
    const secrets = await openSecrets(webhook);
    const headers = signMessage(secrets, id, Math.floor(clock.nowMs() / 1000), body);
    const url = new URL(webhook.url);
    return await postToUntrustedUrl({ url, owner: String(idAccount), headers, body, timeoutMs, signal }, rules);
  }

  async function send(
    webhook: Webhook,
    message: Message,
  ): Promise<{ readonly result: AttemptResult; readonly attempt?: AttemptNote }> {
    try {
      const status = await slots.run(webhook.idWebhook, () => post(webhook, message));
      if (status === undefined) return { result: { state: 'given_up', lastError: 'the webhook was removed' } };
      if (status >= 200 && status < 300) return { result: { state: 'delivered' }, attempt: { status } };
      const problem = `the receiver returned HTTP ${status}`;
      const state = status === 410 ? 'given_up' : 'waiting';
      return { result: { state, lastError: problem }, attempt: { status, problem } };
    } catch (error) {
      const result: AttemptResult = { state: 'waiting', lastError: describeError(error) };
      return { result, attempt: { problem: 'cannot reach the receiver' } };
    }
  }

  /** Records an attempt; a failure is logged. */
  async function note(webhook: Webhook, attempt: Parameters<typeof recordAttempt>[2]): Promise<void> {
    const { idAccount, idWebhook } = webhook;
    try {
      await recordAttempt(paths, webhook, attempt);
      // It may have been removed concurrently.
      if ((await openWebhooks(paths).find(idAccount, idWebhook)) === undefined) await removeDeliveryLog(paths, webhook);
    } catch (error) {
      logger.warn({ idWebhook, error: describeError(error) }, 'cannot record webhook delivery');
    }
  }

  return async (webhook, message) => {
    const { result, attempt } = await send(webhook, message);
    if (signal.aborted || attempt === undefined) return result;
    const { id: idMessage, type, subject } = message;
    await note(webhook, { idMessage, type, subject, atMs: clock.nowMs(), ...attempt });
    return result;
  };
}
