import { RequestError } from '@nats-io/transport-node';
import { describeError } from '../runtime/errors.ts';
import type { StreamConnection } from './connection.ts';

/**
 * Questions after events: import asks, and a process that reads the lake answers. They go by the broker, beside the
 * stream, so that the two may run on different hosts; a question that nobody takes is known at once.
 */

/** A question: the event of an id, or those of the request under an Idempotency-Key, of an app. */
export type EventQuestion = { readonly idApp: number } & (
  | { readonly eventId: string }
  | { readonly requestKey: string }
);

/** What came of a question: the answer as JSON, or why there is none now. */
export type EventReply = { readonly answer: unknown } | { readonly busy: string };

/** `answer` or `busy`, as `EventReply`; a question that was not answered is `busy`, too. */
export type AskForEvent = (question: EventQuestion, timeoutMs: number) => Promise<EventReply>;

const subjectOf = (streamName: string): string => `tributary.${streamName}.event`;
/** Of several processes that could answer, one gets a question. */
const queue = 'event';

/** Asks over a connection that stays the caller's. Never throws. */
export function createEventAsker(connection: StreamConnection, streamName: string): AskForEvent {
  return async (question, timeoutMs) => {
    if (!connection.isConnected()) return { busy: 'the broker is away' };
    try {
      const reply = await connection.nats.request(subjectOf(streamName), JSON.stringify(question), {
        timeout: timeoutMs,
      });
      return reply.json<EventReply>();
    } catch (error) {
      if (error instanceof RequestError && error.isNoResponders())
        return { busy: 'the lake is not open at the moment' };
      return { busy: 'the lake did not answer in time' };
    }
  };
}

/** Answers questions, each as it comes, until `stop`. An error of `reply` is that of one question. */
export function answerEventQuestions(
  connection: StreamConnection,
  streamName: string,
  reply: (question: EventQuestion) => Promise<EventReply>,
): { stop(): void } {
  const subscription = connection.nats.subscribe(subjectOf(streamName), {
    queue,
    callback(failed, message) {
      if (failed !== null) return;
      Promise.resolve()
        .then(() => reply(message.json<EventQuestion>()))
        .catch((error: unknown): EventReply => ({ busy: describeError(error) }))
        .then((answer) => void message.respond(JSON.stringify(answer)))
        // The connection is gone, and with it who has asked.
        .catch(() => undefined);
    },
  });
  return { stop: () => subscription.unsubscribe() };
}
