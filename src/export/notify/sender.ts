import { createKeyedSemaphore } from '../../runtime/async/semaphore.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import { postOutside } from '../../runtime/http/outgoing-post.ts';
import type { OutgoingRules } from '../../runtime/http/outgoing-rules.ts';
import { findWebhook, openWebhookSecret, type Webhook, type WebhookPaths } from '../../webhooks/webhook-store.ts';
import type { LastTries } from '../../webhooks/last-tries.ts';
import { signMessage, type Message } from './message.ts';
import type { WebhookFaults } from './webhook-faults.ts';

export interface SenderDependencies {
  readonly paths: WebhookPaths;
  readonly rules: OutgoingRules;
  readonly clock: Clock;
  /** Told of webhooks whose secrets cannot be opened. */
  readonly faults?: WebhookFaults;
  /** Told what came of each try. */
  readonly tries?: LastTries;
}

/** What came of a message: taken; the receiver is gone for good; or it is to be sent again, and why. */
export type Sent =
  | { readonly state: 'delivered' }
  | { readonly state: 'given_up' | 'waiting'; readonly lastError: string };

/** Sends a message to a webhook, signed; what fails is a result. */
export type SendMessage = (webhook: Webhook, message: Message) => Promise<Sent>;

/** Messages on their way to one webhook at a time; a receiver that hangs keeps no other waiting. */
const sendsAtOnce = 2;

/** Creates what sends messages, until the signal aborts those under way. `timeoutMs`: for one. */
export function createSender(
  { paths, rules, clock, faults, tries }: SenderDependencies,
  timeoutMs: number,
  signal: AbortSignal,
): SendMessage {
  const slots = createKeyedSemaphore(sendsAtOnce);

  async function openSecret(webhook: Webhook): Promise<string> {
    try {
      const secret = await openWebhookSecret(paths, webhook);
      faults?.take(webhook, undefined);
      return secret;
    } catch (error) {
      if (isAppError(error, 'record_damaged')) faults?.take(webhook, describeError(error));
      throw error;
    }
  }

  /** The status of the answer; undefined where the webhook was removed while the message waited for its turn. */
  async function post({ idAccount, idWebhook }: Webhook, { id, body }: Message): Promise<number | undefined> {
    signal.throwIfAborted();
    const webhook = await findWebhook(paths, idAccount, idWebhook);
    if (webhook === undefined) return undefined;
    const secret = await openSecret(webhook);
    // By the time of this try: receivers refuse an old one.
    const headers = signMessage(secret, id, Math.floor(clock.nowMs() / 1000), body);
    const url = new URL(webhook.url);
    return await postOutside({ url, owner: String(idAccount), headers, body, timeoutMs, signal }, rules);
  }

  async function send(webhook: Webhook, message: Message): Promise<Sent & { readonly problem?: string }> {
    try {
      const status = await slots.run(webhook.idWebhook, () => post(webhook, message));
      if (status === undefined) return { state: 'given_up', lastError: 'it was removed' };
      if (status >= 200 && status < 300) return { state: 'delivered' };
      const problem = `it answered ${status}`;
      // The receiver says that it is gone for good.
      return { state: status === 410 ? 'given_up' : 'waiting', lastError: problem, problem };
    } catch (error) {
      return { state: 'waiting', lastError: describeError(error), problem: 'it was not reached' };
    }
  }

  return async (webhook, message) => {
    const { problem, ...sent } = await send(webhook, message);
    const atMs = clock.nowMs();
    if (!signal.aborted) tries?.take(webhook.idWebhook, problem === undefined ? { atMs } : { atMs, problem });
    return sent;
  };
}
