import { createInbox, errors, type Msg, type NatsConnection } from '@nats-io/transport-node';

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

export interface PullReplies {
  /** `isStatus`: the broker's word on the request itself, not a message of the stream. */
  reply(message: Msg, isStatus: boolean): void;
  lost(error: Error): void;
}

/** Takes a fresh connection over for pulls; `onError` gets each error that the broker reports. */
export function createPullConnection(nats: NatsConnection, onError: (error: Error) => void): PullConnection {
  const requests = new Set<PullReplies>();
  let pingsDue = 0;

  function lose(error: Error): void {
    for (const { lost } of requests) lost(error);
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
        callback: (error, message) => (error === null ? take.reply(message, message.subject === inbox) : take.lost(error)),
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
