import type { MessageHead, ProtocolSink } from './protocol-parser.ts';

/** Takes what the broker sends for one request. */
export interface Delivery {
  /** The memory that the payload of a message is read into: so many bytes. */
  room(bytes: number): Uint8Array;
  /** A message of the stream is whole; its reply subject says which it is. */
  message(reply: string, payload: Uint8Array): void;
  /** The broker says something of the request itself: as in HTTP, a code and a text. */
  status(code: number, text: string): void;
  /** No more will come. */
  lost(error: Error): void;
}

/** A message that comes in, and the memory for it; none while nobody takes it. */
interface Incoming {
  readonly head: MessageHead;
  readonly delivery: Delivery | undefined;
  readonly payload: Uint8Array;
  filled: number;
}

/** Hands messages to those who have asked for them, each by the id of its subscription. */
export interface Deliveries extends Omit<ProtocolSink, 'line'> {
  add(sid: string, inbox: string, delivery: Delivery): void;
  remove(sid: string): void;
  /** Ends all. */
  lose(error: Error): void;
}

const none = new Uint8Array(0);

/** The status line of headers. */
function parseStatus(headers: Buffer): { readonly code: number; readonly text: string } {
  const [, code, text = ''] = /^NATS\/1\.0[ \t]+(\d{3})[ \t]*([^\r\n]*)/.exec(headers.toString()) ?? [];
  return { code: Number(code ?? 0), text };
}

/** Creates them, empty. What is for nobody any more, such as what comes late for a request that was cut off, is dropped. */
export function createDeliveries(): Deliveries {
  const taken = new Map<string, { readonly inbox: string; readonly delivery: Delivery }>();
  let incoming: Incoming | undefined;

  return {
    add: (sid, inbox, delivery) => void taken.set(sid, { inbox, delivery }),
    remove: (sid) => void taken.delete(sid),
    lose(error) {
      const lost = [...taken.values()];
      taken.clear();
      for (const { delivery } of lost) delivery.lost(error);
    },
    begin(head) {
      const found = taken.get(head.sid);
      const isStatus = found === undefined || head.subject === found.inbox;
      const payload = isStatus ? none : found.delivery.room(head.payloadBytes);
      incoming = { head, delivery: found?.delivery, payload, filled: 0 };
    },
    payload(bytes) {
      // Once it is not asked for any more, its memory is somebody else's.
      if (incoming === undefined || incoming.payload.length === 0 || !taken.has(incoming.head.sid)) return;
      incoming.payload.set(bytes, incoming.filled);
      incoming.filled += bytes.length;
    },
    end(headers) {
      const whole = incoming;
      incoming = undefined;
      const found = taken.get(whole?.head.sid ?? '');
      if (whole === undefined || found === undefined) return;
      const { head, payload } = whole;
      if (head.subject !== found.inbox) return found.delivery.message(head.reply ?? '', payload);
      const { code, text } = parseStatus(headers);
      found.delivery.status(code, text);
    },
  };
}
