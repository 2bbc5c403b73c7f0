import { createInbox, errors } from '@nats-io/transport-node';
import { createDeliveries, type Delivery } from './deliveries.ts';
import { openWire, type WireTarget } from './wire.ts';

/**
 * A connection that only asks for messages and takes them: their bytes go from the socket to the memory of whoever has
 * asked. It is not renewed when it is lost.
 */
export interface PullConnection {
  isOpen(): boolean;
  /** The broker has shown no sign of life since the last request. */
  isSilent(): boolean;
  /**
   * Publishes a request, and gives what the broker sends for it to `delivery`, until the function is called that it
   * returns.
   */
  request(subject: string, body: string, delivery: Delivery): () => void;
  close(): void;
}

/**
 * Opens one; `onError` is told each error that the broker reports. Errors: those of `openWire`.
 */
export async function openPullConnection(target: WireTarget, onError: (error: Error) => void): Promise<PullConnection> {
  const deliveries = createDeliveries();
  const inbox = createInbox();
  let requests = 0;
  let isOpen = true;
  const wire = await openWire(target, {
    ...deliveries,
    reported(error) {
      onError(error);
      // The broker names the subject, not the request: there is one at a time.
      if (error instanceof errors.PermissionViolationError) deliveries.lose(error);
    },
    lost(error) {
      isOpen = false;
      deliveries.lose(error);
    },
  });
  return {
    isOpen: () => isOpen,
    isSilent: () => wire.isSilent(),
    request(subject, body, delivery) {
      requests += 1;
      const sid = String(requests);
      const replies = `${inbox}.${sid}`;
      deliveries.add(sid, replies, delivery);
      if (!isOpen) queueMicrotask(() => deliveries.lose(new errors.ClosedConnectionError()));
      wire.writeAndPing(`SUB ${replies} ${sid}\r\nPUB ${subject} ${replies} ${Buffer.byteLength(body)}\r\n${body}\r\n`);
      return () => {
        deliveries.remove(sid);
        if (isOpen) wire.write(`UNSUB ${sid}\r\n`);
      };
    },
    close() {
      isOpen = false;
      wire.close();
    },
  };
}
