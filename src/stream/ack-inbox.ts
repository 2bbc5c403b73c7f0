import { createInbox, errors, type Msg, type Subscription } from '@nats-io/transport-node';
import { JetStreamApiError, type ApiError } from '@nats-io/jetstream';
import { AppError } from '../runtime/errors.ts';
import { isNoRoom, wrapBrokerError } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import type { PublishAck } from './stream.ts';

/**
 * Publishes to JetStream and hands back its acknowledgements, which all come to one inbox. The library's own way makes
 * two errors with a stack, a set of headers and a race of promises for each message, whether it fails or not.
 */
interface AckInbox {
  /**
   * Sends a message; the ack says that it is fsynced. Errors: `publish_unknown` when no answer came in time, or before
   * the connection was lost; `stream_full`, `broker_away`, `broker_refused`: it is not stored.
   */
  publish(subject: string, payload: Uint8Array, timeoutMs: number): Promise<PublishAck>;
  /** Messages that were sent and have no answer yet. */
  waiting(): number;
  /** Takes no more answers; what still waits for one is unknown. */
  close(): void;
}

/** A message without an answer yet. */
interface Sent {
  readonly subject: string;
  readonly timer: NodeJS.Timeout;
  readonly resolve: (ack: PublishAck) => void;
  readonly reject: (error: AppError) => void;
}

/** The answer to a publish: where the message is, or why it is not stored. */
interface Answer {
  readonly stream?: string;
  readonly seq?: number;
  readonly error?: ApiError;
}

/** What an answer that is an error says: the message is not stored. */
function toPublishError(error: Error): AppError {
  if (isNoRoom(error))
    return new AppError('stream_full', `publish: the stream is full: ${error.message} (${error.code})`, {
      cause: error,
    });
  return wrapBrokerError(error, 'publish');
}

/** Reads an answer of JetStream. Errors: as `publish`; an answer that is none of JetStream's is `publish_unknown`. */
function readAck({ data, headers }: Msg): PublishAck {
  // Nobody is subscribed to the subject: the stream has no leader at the moment, or is gone.
  if (data.length === 0 && headers?.code === 503)
    throw new AppError('broker_away', 'publish: nobody takes messages for the stream at the moment');
  const { stream, seq, error } = JSON.parse(
    Buffer.from(data.buffer, data.byteOffset, data.length).toString(),
  ) as Answer;
  if (error !== undefined) throw toPublishError(new JetStreamApiError(error));
  if (stream === undefined || stream === '' || seq === undefined)
    throw new AppError('publish_unknown', 'publish: the answer names no stream');
  return { stream, sequence: seq };
}

/** Opens the inbox; it asks the broker for answers from the first message on. */
export function openAckInbox(connection: StreamConnection): AckInbox {
  const { nats } = connection;
  const inbox = createInbox();
  /** By the last part of the subject that the answer comes to, oldest first. */
  const sent = new Map<string, Sent>();
  let subscription: Subscription | undefined;
  let count = 0;

  function take(id: string): Sent | undefined {
    const found = sent.get(id);
    if (found === undefined) return undefined;
    sent.delete(id);
    clearTimeout(found.timer);
    return found;
  }

  function failAll(why: AppError): void {
    for (const id of sent.keys()) take(id)?.reject(why);
  }

  function receive(refused: Error | null, message: Msg): void {
    if (refused !== null) {
      // The broker takes messages of this user, and may not answer them; asked again with the next.
      subscription = undefined;
      failAll(new AppError('publish_unknown', `publish: no answer may come: ${refused.message}`, { cause: refused }));
      return;
    }
    const waiting = take(message.subject.slice(inbox.length + 1));
    if (waiting === undefined) return;
    try {
      waiting.resolve(readAck(message));
    } catch (error) {
      waiting.reject(
        error instanceof AppError
          ? error
          : new AppError('publish_unknown', 'publish: the answer cannot be read', { cause: error }),
      );
    }
  }

  /**
   * The broker names the subject that it refuses, not the message: it is the oldest one to it. A missing right to
   * subscribe says nothing of a message: the broker has taken that, and only its answer cannot come.
   */
  function refuse(error: Error): void {
    if (!(error instanceof errors.PermissionViolationError) || error.operation !== 'publish') return;
    for (const [id, { subject }] of sent)
      if (subject === error.subject) return take(id)?.reject(wrapBrokerError(error, 'publish'));
  }

  const lose = (): void =>
    failAll(new AppError('publish_unknown', 'publish: the connection was lost before the answer'));
  const forgetDisconnects = connection.onDisconnect(lose);
  const forgetErrors = connection.onError(refuse);
  // The library ends the waits of its own requests only.
  void nats.closed().then(lose);

  return {
    publish(subject, payload, timeoutMs) {
      count += 1;
      const id = String(count);
      try {
        subscription ??= nats.subscribe(`${inbox}.*`, { callback: receive });
        nats.publish(subject, payload, { reply: `${inbox}.${id}` });
      } catch (error) {
        return Promise.reject(wrapBrokerError(error, 'publish'));
      }
      return new Promise((resolve, reject) => {
        const giveUp = (): void =>
          take(id)?.reject(new AppError('publish_unknown', `publish: no answer within ${Math.round(timeoutMs)} ms`));
        const timer = setTimeout(giveUp, timeoutMs);
        sent.set(id, { subject, timer, resolve, reject });
      });
    },
    waiting: () => sent.size,
    close() {
      forgetDisconnects();
      forgetErrors();
      if (!nats.isClosed()) subscription?.unsubscribe();
      failAll(new AppError('publish_unknown', 'publish: the publisher was closed before the answer'));
    },
  };
}
