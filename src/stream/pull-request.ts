import { errors, type Msg, createInbox, type NatsConnection } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { wrapBrokerError } from './broker-errors.ts';
import { findLinesBytes } from './message-compression.ts';
import type { StreamMessage } from './stream.ts';
import { findTraces } from './trace-header.ts';

interface PullReplies {
  /** `isStatus`: a status of the request, not a message of the stream. */
  reply(message: Msg, isStatus: boolean): void;
  lost(error: Error): void;
}

export type PullConnection = ReturnType<typeof createPullConnection>;

/**
 * Uses a connection for pulls only, so that a backlog delays no other response. It does not reconnect. `reply` copies what
 * it keeps of a message: the connection reuses its buffers.
 */
export function createPullConnection(nats: NatsConnection, onError: (error: Error) => void) {
  const requests = new Set<PullReplies>();
  let pingsDue = 0;

  function lose(error: Error): void {
    for (const replies of requests) replies.lost(error);
  }

  async function follow(): Promise<void> {
    for await (const status of nats.status()) {
      if (status.type !== 'error') continue;
      onError(status.error);
      // The broker names the subject, not the request: there is one at a time.
      if (status.error instanceof errors.PermissionViolationError) lose(status.error);
    }
  }
  void follow();
  void nats.closed().then((error) => lose(error ?? new errors.ClosedConnectionError()));

  return {
    isOpen: () => !nats.isClosed(),
    /** Reports whether the broker has not answered since the last request. */
    isSilent: () => pingsDue > 0,
    /** Publishes a request; passes each reply, or the final error, to `take` until the returned function is called. */
    request(subject: string, body: string, take: PullReplies): () => void {
      requests.add(take);
      if (nats.isClosed()) {
        queueMicrotask(() => take.lost(new errors.ClosedConnectionError()));
        return () => void requests.delete(take);
      }
      const inbox = createInbox();
      const subscription = nats.subscribe(inbox, {
        callback: (error, message) =>
          error === null ? take.reply(message, message.subject === inbox) : take.lost(error),
      });
      nats.publish(subject, body, { reply: inbox });
      pingsDue += 1;
      nats.flush().then(
        () => (pingsDue -= 1),
        () => undefined,
      );
      return () => {
        requests.delete(take);
        subscription.unsubscribe();
      };
    },
    close: () => void nats.close(),
  };
}

export interface PullRequest {
  readonly streamName: string;
  readonly consumer: string;
  readonly batch: number;
  /** Most bytes, with subjects, replies and headers. */
  readonly maxBytes: number;
  /** When the broker ends it, ms. */
  readonly expiresMs: number;
  /** When it is ended here, if the broker has not ended it, ms. */
  readonly cutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly room: (bytes: number) => Uint8Array;
  /** Called with each message, the moment it is complete. */
  readonly onArrival: () => void;
}

interface Pulled {
  readonly messages: StreamMessage[];
  /** Whether nothing can have been delivered and missed. */
  readonly clean: boolean;
  /** Error of a request that would fail again. */
  readonly refused?: Error;
  /** Messages that the broker allows per request, if fewer than were asked for. */
  readonly maxMessages?: number;
}

const maxHeartbeatMs = 30_000;
const [idleHeartbeat, badRequest] = [100, 400];
const nanosOfMs = 1_000_000;

/** Classifies a status, a code and a text as in HTTP, that ends a request. */
export function classifyStatus(code: number, text: string): Omit<Pulled, 'messages'> {
  // Malformed, or more than is allowed: it would be refused again.
  if (code === badRequest || (code === 409 && /^exceeded max/i.test(text))) {
    const [, most] = /maxrequestbatch of (\d+)/i.exec(text) ?? [];
    const refused = new errors.ProtocolError(`${code} ${text}`);
    return { clean: false, refused, ...(most === undefined ? {} : { maxMessages: Math.max(1, Number(most)) }) };
  }
  // Its bytes are reached, or it has expired.
  return { clean: code === 404 || code === 408 || (code === 409 && /batch completed|exceeds maxbytes/i.test(text)) };
}

/**
 * Parses the reply subject of a message: `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<sequence of the
 * consumer>.<nanoseconds>...`; a longer one has the domain and a hash of the account before the stream.
 */
export function parseReply(reply: string): Pick<StreamMessage, 'sequence' | 'storedAtMs'> {
  const words = reply.split('.');
  const at = words.length === 9 ? 5 : 7;
  const sequence = Number(words[at]);
  if (!reply.startsWith('$JS.ACK.') || !Number.isSafeInteger(sequence))
    throw new AppError('broker_away', `the broker sent a message without a stream: ${reply}`);
  const storedAt = words[at + 2] ?? '';
  // Truncated, not divided: a double cannot store the nanoseconds, and rounding could result in a later time.
  return { sequence, storedAtMs: /^\d{13,20}$/.test(storedAt) ? Number(storedAt.slice(0, -6)) : undefined };
}

/** Sends one request; collects messages until the broker ends it, it is ended here, or the connection is lost. */
export function pullOnce(pulls: PullConnection, request: PullRequest): Promise<Pulled> {
  const { streamName, consumer, batch, maxBytes, expiresMs, cutMs, signal, room, onArrival } = request;
  const heartbeatMs = Math.min(maxHeartbeatMs, Math.floor(expiresMs / 2));
  const messages: StreamMessage[] = [];
  return new Promise((resolve) => {
    const interrupt = (): void => end({ clean: false });
    const timer = setTimeout(interrupt, cutMs);
    // A broker that is silent for two heartbeats has exited, however long the request may last.
    const silence = setTimeout(interrupt, 2 * heartbeatMs + 500);
    signal?.addEventListener('abort', interrupt, { once: true });

    function take(message: Msg): void {
      const payload = room(message.data.length);
      // The client hands over a part of the socket's buffer, which is filled again.
      payload.set(message.data);
      const linesBytes = findLinesBytes(() => message.headers);
      const traceparents = findTraces(() => message.headers);
      messages.push({ ...parseReply(message.reply ?? ''), payload, linesBytes, traceparents });
      onArrival();
      if (messages.length === batch) end({ clean: true });
    }

    const body = {
      batch,
      max_bytes: maxBytes,
      expires: expiresMs * nanosOfMs,
      idle_heartbeat: heartbeatMs * nanosOfMs,
    };
    const stop = pulls.request(`$JS.API.CONSUMER.MSG.NEXT.${streamName}.${consumer}`, JSON.stringify(body), {
      reply(message, isStatus) {
        silence.refresh();
        try {
          if (!isStatus) return take(message);
          const { code = 0, description = '' } = message.headers ?? {};
          if (code !== idleHeartbeat) end(classifyStatus(code, description));
        } catch (error) {
          end({ clean: false, refused: wrapBrokerError(error, 'pull from the stream') });
        }
      },
      lost: (error) =>
        end({ clean: false, ...(error instanceof errors.PermissionViolationError ? { refused: error } : {}) }),
    });
    if (signal?.aborted === true) interrupt();

    function end(how: Omit<Pulled, 'messages'>): void {
      clearTimeout(timer);
      clearTimeout(silence);
      signal?.removeEventListener('abort', interrupt);
      stop();
      resolve({ messages, ...how });
    }
  });
}
