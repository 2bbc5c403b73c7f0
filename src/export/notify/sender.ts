import { createSlots } from '../../runtime/async/slots.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError } from '../../runtime/errors.ts';
import { postOutside } from '../../runtime/http/outgoing-post.ts';
import type { OutgoingRules } from '../../runtime/http/outgoing-rules.ts';
import { openWebhookSecret, type Webhook, type WebhookPaths } from '../../webhooks/webhook-store.ts';
import { signMessage, type Message } from './message.ts';

export interface SenderDependencies {
  readonly paths: WebhookPaths;
  readonly rules: OutgoingRules;
  readonly clock: Clock;
}

/** What came of a message: taken; the receiver is gone for good; or it is to be sent again, and why. */
export type Sent =
  | { readonly state: 'delivered' }
  | { readonly state: 'given_up' | 'waiting'; readonly lastError: string };

/** Sends a message to a webhook, signed; what fails is a result. */
export type SendMessage = (webhook: Webhook, message: Message) => Promise<Sent>;

/** Messages on their way at a time. */
const sendsAtOnce = 8;

/** Creates what sends messages, until the signal aborts those under way. `timeoutMs`: for one. */
export function createSender(
  { paths, rules, clock }: SenderDependencies,
  timeoutMs: number,
  signal: AbortSignal,
): SendMessage {
  const slots = createSlots(sendsAtOnce);

  async function post(webhook: Webhook, { id, body }: Message): Promise<number> {
    const secret = await openWebhookSecret(paths, webhook);
    const headers = signMessage(secret, id, Math.floor(clock.nowMs() / 1000), body);
    const url = new URL(webhook.url);
    return await slots.run(() => postOutside({ url, headers, body, timeoutMs, signal }, rules));
  }

  return async (webhook, message) => {
    try {
      const status = await post(webhook, message);
      if (status >= 200 && status < 300) return { state: 'delivered' };
      // The receiver says that it is gone for good.
      return { state: status === 410 ? 'given_up' : 'waiting', lastError: `it answered ${status}` };
    } catch (error) {
      return { state: 'waiting', lastError: describeError(error) };
    }
  };
}
