import { RequestError } from '@nats-io/transport-node';
import { pause } from '../runtime/async/retry.ts';
import { describeError } from '../runtime/errors.ts';
import type { StreamConnection } from './connection.ts';

// Event lookups of import, over the broker, by a process that reads the lake, possibly on another host. While the
// compactor hangs or restarts, a stand-in in another process responds.

/** The id of an event, or the start of the ids of the request under an Idempotency-Key. */
export type EventTarget = { readonly eventId: string } | { readonly requestKey: string };

/** A query after the event of an id, or the events of the request under an Idempotency-Key, of an app. */
export type EventQuery = { readonly idApp: number } & EventTarget;

/** Many queries of an app at once. Each has alternatives, the first known of which counts. */
export interface EventsQuery {
  readonly idApp: number;
  readonly queries: readonly (readonly EventTarget[])[];
}

/** The reply to a query: the response as JSON, or why there is none now. */
export type EventReply = { readonly answer: unknown } | { readonly busy: string };

export type QueryEvent = (query: EventQuery | EventsQuery, timeoutMs: number) => Promise<EventReply>;

export type Responder = 'compactor' | 'stand-in';

const subjectOf = (streamName: string, responder: Responder): string =>
  `tributary.${streamName}.event${responder === 'compactor' ? '' : '.stand-in'}`;
const standInDelayMs = 600;
/** Queue group: one of several answering processes gets a query. */
const queue = 'event';

/** Creates the asker: it asks the compactor, and later the stand-in too; the first reply counts. Never throws. */
export function createEventQueryClient(connection: StreamConnection, streamName: string): QueryEvent {
  return async (query, timeoutMs) => {
    if (!connection.isConnected()) return { busy: 'the broker is unreachable' };
    const untilMs = performance.now() + timeoutMs;
    const queryResponder = async (responder: Responder): Promise<EventReply> => {
      const timeout = Math.max(1, untilMs - performance.now());
      const reply = await connection.nats.request(subjectOf(streamName, responder), JSON.stringify(query), {
        timeout,
      });
      return reply.json<EventReply>();
    };
    const stopWaiting = new AbortController();
    const compactorReply = queryResponder('compactor');
    const earlyReply = await Promise.race([
      compactorReply.catch(() => undefined),
      pause(standInDelayMs, stopWaiting.signal),
    ]);
    stopWaiting.abort();
    if (earlyReply !== undefined) return earlyReply;
    return Promise.any([compactorReply, queryResponder('stand-in')]).catch((failed: AggregateError): EventReply => {
      const isAway = failed.errors.every((error) => error instanceof RequestError && error.isNoResponders());
      return { busy: isAway ? 'the lake is not open at the moment' : 'the lake did not respond in time' };
    });
  };
}

/** Answers queries until `stop`. An error of `reply` fails one query. */
export function serveEventQueries(
  connection: StreamConnection,
  streamName: string,
  responder: Responder,
  reply: (query: EventQuery | EventsQuery) => Promise<EventReply>,
): { stop(): void } {
  const subscription = connection.nats.subscribe(subjectOf(streamName, responder), {
    queue,
    callback(failed, message) {
      if (failed !== null) return;
      Promise.resolve()
        .then(() => reply(message.json<EventQuery | EventsQuery>()))
        .catch((error: unknown): EventReply => ({ busy: describeError(error) }))
        .then((eventReply) => void message.respond(JSON.stringify(eventReply)))
        // The connection is closed, and the asker with it.
        .catch(() => undefined);
    },
  });
  return { stop: () => subscription.unsubscribe() };
}
