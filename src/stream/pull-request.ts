import { errors, type Msg, createInbox, type NatsConnection } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { wrapBrokerError } from './broker-errors.ts';
import type { StreamMessage } from './stream.ts';

/**
 * A connection that only asks for messages and takes them, so that a backlog holds up no other answer. It is not renewed
 * when it is lost.
 */
export interface PullConnection {
  isOpen(): boolean;
  /** Reports whether the broker has given no sign of life since the last request. */
  isSilent(): boolean;
  /**
   * Publishes a request and hands each reply to `reply`, or the error that ends it to `lost`, until the function is
   * called that it returns.
   */
  request(subject: string, body: string, take: PullReplies): () => void;
  close(): void;
}

interface PullReplies {
  /** `isStatus`: the broker's word on the request itself, not a message of the stream. */
  reply(message: Msg, isStatus: boolean): void;
  lost(error: Error): void;
}

/** Takes a fresh connection over for pulls; `onError` gets each error that the broker reports. */
export function createPullConnection(nats: NatsConnection, onError: (error: Error) => void): PullConnection {
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
    isSilent: () => pingsDue > 0,
    request(subject, body, take) {
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

/** One request for messages of a consumer. */
export interface PullRequest {
  readonly streamName: string;
  readonly consumer: string;
  /** Most messages. */
  readonly batch: number;
  /** With subjects, replies and headers. */
  readonly maxBytes: number;
  /** When the broker ends it, milliseconds. */
  readonly expiresMs: number;
  /** When it is cut off here, should the broker not have ended it. */
  readonly cutMs: number;
  readonly signal: AbortSignal | undefined;
  /** Gives the memory for so many bytes of a payload. */
  readonly room: (bytes: number) => Uint8Array;
  /** Called with each message, the moment it is whole. */
  readonly onArrival: () => void;
}

/** What one request brought. `clean` says that nothing can have been delivered and missed. */
interface Pulled {
  readonly messages: StreamMessage[];
  readonly clean: boolean;
  /** Why it brought no more, where asking again would only bring the same. */
  readonly refused?: Error;
  /** Fewer messages are allowed in a request than were asked for. */
  readonly mostMessages?: number;
}

const maxHeartbeatMs = 30_000;
const [idleHeartbeat, badRequest] = [100, 400];
const nanosOfMs = 1_000_000;

/**
 * Judges a status, which as in HTTP is a code and a text, that ends a request. One that would be refused again is
 * malformed, or asks for more than is allowed.
 */
export function judgeStatus(code: number, text: string): Omit<Pulled, 'messages'> {
  if (code === badRequest || (code === 409 && /^exceeded max/i.test(text))) {
    const [, most] = /maxrequestbatch of (\d+)/i.exec(text) ?? [];
    const refused = new errors.ProtocolError(`${code} ${text}`);
    return { clean: false, refused, ...(most === undefined ? {} : { mostMessages: Math.max(1, Number(most)) }) };
  }
  // Its bytes are reached, or its time is over.
  return { clean: code === 404 || code === 408 || (code === 409 && /batch completed|exceeds maxbytes/i.test(text)) };
}

/**
 * What the reply subject of a message says of it: `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<sequence of the
 * consumer>.<nanoseconds>...`, with the domain and a hash of the account before the stream where it is longer.
 */
export function parseReply(reply: string): Pick<StreamMessage, 'sequence' | 'storedAtMs'> {
  const words = reply.split('.');
  const at = words.length === 9 ? 5 : 7;
  const sequence = Number(words[at]);
  if (!reply.startsWith('$JS.ACK.') || !Number.isSafeInteger(sequence))
    throw new AppError('broker_away', `the broker sent a message that is of no stream: ${reply}`);
  const storedAt = words[at + 2] ?? '';
  // Cut off, not divided: a double cannot hold the nanoseconds, and rounding could name a later time.
  return { sequence, storedAtMs: /^\d{13,20}$/.test(storedAt) ? Number(storedAt.slice(0, -6)) : undefined };
}

/** Asks once, and gathers what comes until the broker ends it, it is cut off, or the connection is lost. */
export function pullOnce(pulls: PullConnection, request: PullRequest): Promise<Pulled> {
  const { streamName, consumer, batch, maxBytes, expiresMs, cutMs, signal, room, onArrival } = request;
  const heartbeatMs = Math.min(maxHeartbeatMs, Math.floor(expiresMs / 2));
  const messages: StreamMessage[] = [];
  return new Promise((resolve) => {
    const cut = (): void => end({ clean: false });
    const timer = setTimeout(cut, cutMs);
    // A broker that is silent for two heartbeats is gone, however long the request may last.
    const silence = setTimeout(cut, 2 * heartbeatMs + 500);
    signal?.addEventListener('abort', cut, { once: true });

    function take(message: Msg): void {
      const payload = room(message.data.length);
      // What the library hands over is a part of all that the socket gave at once.
      payload.set(message.data);
      messages.push({ ...parseReply(message.reply ?? ''), payload });
      onArrival();
      if (messages.length === batch) end({ clean: true });
    }

    const stop = pulls.request(
      `$JS.API.CONSUMER.MSG.NEXT.${streamName}.${consumer}`,
      JSON.stringify({
        batch,
        max_bytes: maxBytes,
        expires: expiresMs * nanosOfMs,
        idle_heartbeat: heartbeatMs * nanosOfMs,
      }),
      {
        reply(message, isStatus) {
          silence.refresh();
          try {
            if (!isStatus) return take(message);
            const { code = 0, description = '' } = message.headers ?? {};
            if (code !== idleHeartbeat) end(judgeStatus(code, description));
          } catch (error) {
            end({ clean: false, refused: wrapBrokerError(error, 'pull from the stream') });
          }
        },
        // A right that is missing stays so when it is asked again.
        lost: (error) =>
          end({ clean: false, ...(error instanceof errors.PermissionViolationError ? { refused: error } : {}) }),
      },
    );
    if (signal?.aborted === true) cut();

    function end(how: Omit<Pulled, 'messages'>): void {
      clearTimeout(timer);
      clearTimeout(silence);
      signal?.removeEventListener('abort', cut);
      stop();
      resolve({ messages, ...how });
    }
  });
}
