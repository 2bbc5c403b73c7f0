import assert from 'node:assert/strict';
import { AppError } from '../runtime/errors.ts';
import type { StreamConnection } from './connection.ts';
import { noGuard, type StreamGuard } from './guard.ts';
import { maxMessageBytes, type StreamPublisher, type PublishAck } from './stream.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { isInteger, isText, optional, shapeOf } from '../runtime/store/shape.ts';
import { areSameFolders, type FolderIds } from '../runtime/files/folder-id.ts';
import { createStoreCheck } from './store-files.ts';
import { createInbox, errors, type Msg, type MsgHdrs, type Subscription } from '@nats-io/transport-node';
import { JetStreamApiError, type ApiError } from '@nats-io/jetstream';
import { isNoRoom, wrapBrokerError } from './broker-errors.ts';
import { compressLines, isCompressing, renderSize, type StreamCompression } from './message-compression.ts';
import { addTraces } from './trace-header.ts';

/** A message to send. */
interface Outgoing {
  readonly payload: Uint8Array;
  readonly headers?: MsgHdrs;
}

interface Sent {
  readonly subject: string;
  readonly timer: NodeJS.Timeout;
  readonly resolve: (ack: PublishAck) => void;
  readonly reject: (error: AppError) => void;
}

const isApiError = shapeOf<ApiError>({ code: isInteger, err_code: optional(isInteger), description: optional(isText) });

const unknown = (why: string, cause?: unknown): AppError =>
  new AppError('publish_unknown', `publish: ${why}`, cause === undefined ? {} : { cause });

/** Parses a response of JetStream. Errors: as `publish`; `publish_unknown` for any other message. */
function readAck({ data, headers }: Msg): PublishAck {
  // No one subscribes to the subject: the stream has no leader at the moment, or was deleted.
  if (data.length === 0 && headers?.code === 503)
    throw new AppError('broker_away', 'publish: the stream has no leader at the moment');
  // The place of the message, or why it is not stored.
  const answer: unknown = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.length).toString());
  const { stream, seq, error } = membersOf(answer);
  if (isApiError(error)) {
    const refused = new JetStreamApiError(error);
    if (!isNoRoom(refused)) throw wrapBrokerError(refused, 'publish');
    const text = `publish: the stream is full: ${refused.message} (${refused.code})`;
    throw new AppError('stream_full', text, { cause: refused });
  }
  if (error !== undefined || !isText(stream) || stream === '' || !isInteger(seq))
    throw unknown('the response names no stream');
  return { stream, sequence: seq };
}

/** Opens one inbox for all acks: the library's publish would take 17 to 20 % of an ingest worker. */
function openAckInbox(connection: StreamConnection) {
  const { nats } = connection;
  const inbox = createInbox();
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
      // The broker takes messages of this user, and may not answer them; subscribed again with the next.
      subscription = undefined;
      failAll(unknown(`cannot receive the response: ${refused.message}`, refused));
      return;
    }
    const waiting = take(message.subject.slice(inbox.length + 1));
    if (waiting === undefined) return;
    try {
      waiting.resolve(readAck(message));
    } catch (error) {
      waiting.reject(error instanceof AppError ? error : unknown('cannot read the response', error));
    }
  }

  /** Fails the oldest message to a denied subject. A denied subscription fails none: only responses are lost. */
  function refuse(error: Error): void {
    if (!(error instanceof errors.PermissionViolationError) || error.operation !== 'publish') return;
    for (const [id, { subject }] of sent)
      if (subject === error.subject) return take(id)?.reject(wrapBrokerError(error, 'publish'));
  }

  const lose = (): void => failAll(unknown('the connection was lost before the response'));
  const forgetDisconnects = connection.onDisconnect(lose);
  const forgetErrors = connection.onError(refuse);
  // The library ends only its own requests.
  void nats.closed().then(lose);

  return {
    /** Sends a message. Errors: `publish_unknown`; `stream_full`, `broker_away`, `broker_refused` (not stored). */
    publish(subject: string, { payload, ...options }: Outgoing, timeoutMs: number): Promise<PublishAck> {
      count += 1;
      const id = String(count);
      try {
        subscription ??= nats.subscribe(`${inbox}.*`, { callback: receive });
        nats.publish(subject, payload, { ...options, reply: `${inbox}.${id}` });
      } catch (error) {
        return Promise.reject(wrapBrokerError(error, 'publish'));
      }
      return new Promise((resolve, reject) => {
        const giveUp = (): void => take(id)?.reject(unknown(`no response within ${Math.round(timeoutMs)} ms`));
        const timer = setTimeout(giveUp, timeoutMs);
        sent.set(id, { subject, timer, resolve, reject });
      });
    },
    waiting: () => sent.size,
    /** Fails what still waits with `publish_unknown`. */
    close(): void {
      forgetDisconnects();
      forgetErrors();
      if (!nats.isClosed()) subscription?.unsubscribe();
      failAll(unknown('the publisher was closed before the response'));
    },
  };
}

interface OpenPublisher extends StreamPublisher {
  isPublishing(): boolean;
}

/**
 * Opens a publisher over a connection, which the caller closes. An ack means that the message is fsynced, and that the
 * stream has not changed since the permit. A lost connection throws `publish_unknown` at once.
 */
export function openPublisher(
  connection: StreamConnection,
  guard: StreamGuard = noGuard,
  compression: StreamCompression = 'off',
): OpenPublisher {
  const inbox = openAckInbox(connection);

  function acquirePermit(): ReturnType<StreamGuard['acquirePermit']> {
    // The library would send the message after the reconnect, long after the client was rejected.
    if (!connection.isConnected()) throw new AppError('broker_away', 'publish: not connected to the broker');
    return guard.acquirePermit();
  }

  return {
    async publish(payload, timeoutMs, traceparents) {
      assert(payload.length > 0 && payload.length <= maxMessageBytes, `message of ${payload.length} bytes`);
      const dueMs = performance.now() + timeoutMs;
      let publishPermit = acquirePermit();
      let compressed: Uint8Array | undefined;
      if (isCompressing(compression, publishPermit.copies)) {
        compressed = await compressLines(payload);
        // The stream or the connection may have changed meanwhile.
        publishPermit = acquirePermit();
      }
      const headers = addTraces(compressed && renderSize(payload.length), traceparents);
      const message = { payload: compressed ?? payload, ...(headers === undefined ? {} : { headers }) };
      const ack = await inbox.publish(publishPermit.subject, message, dueMs - performance.now());
      assert.equal(ack.stream, publishPermit.stream, 'another stream has taken the event subject');
      if (!(await guard.isPermitValid(publishPermit))) throw unknown('the stream was changed before the response');
      return { ...ack, streamId: publishPermit.streamId, compressedBytes: compressed?.length };
    },
    isPublishing: () => inbox.waiting() > 0,
    ping: (timeoutMs) => connection.ping(timeoutMs),
    close: async () => inbox.close(),
  };
}

/**
 * Returns a publisher whose acks also require that the folders are still the service's; otherwise `publish_unknown`.
 * `folders` without `natsFolder`: the broker is external, and its store is not checked.
 */
export function createVerifiedPublisher(
  publisher: StreamPublisher,
  folders: FolderIds,
  natsFolder: string,
): StreamPublisher {
  const store = folders[natsFolder] === undefined ? undefined : createStoreCheck(natsFolder);
  return {
    ...publisher,
    async publish(payload, timeoutMs, traceparents) {
      const ack = await publisher.publish(payload, timeoutMs, traceparents);
      const isOurs = areSameFolders(folders) && (store === undefined || (await store.isKept().catch(() => false)));
      if (!isOurs) throw unknown('the folders of the service, or files in them, were moved, removed or replaced');
      return ack;
    },
  };
}
