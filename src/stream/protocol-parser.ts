/**
 * Reads what a NATS server sends, in whatever pieces it comes. The payload of a message is handed on in the pieces that
 * are there, and never kept: the library's own parser grows a buffer for each message that comes in two reads, which
 * took more time than all else that was done with the messages of a full stream.
 */

/** What a message begins with, MSG or HMSG. */
export interface MessageHead {
  readonly subject: string;
  /** Of the subscription that it is for. */
  readonly sid: string;
  readonly reply: string | undefined;
  readonly headerBytes: number;
  readonly payloadBytes: number;
}

/** Takes what was read, in the order of the connection. */
export interface ProtocolSink {
  /** A line of another kind, without its end: INFO, PING, PONG, +OK or -ERR, with its argument. */
  line(text: string): void;
  begin(head: MessageHead): void;
  /** The next bytes of the payload. They are the caller's, and may be others after this call. */
  payload(bytes: Uint8Array): void;
  /** The message is whole. Its headers, with their end, are empty when it has none. */
  end(headers: Buffer): void;
}

/** Upper bound of a line, bytes: INFO names every server of a cluster. */
const maxLineBytes = 1024 * 1024;
/** Upper bound of a message, bytes: that of any NATS server. */
const maxBodyBytes = 64 * 1024 * 1024;

const lineEnd = 0x0a;
const carriageReturn = 0x0d;
const nothing = Buffer.alloc(0);

/** The connection cannot be read on: it is not known any more where a message begins. */
export class ProtocolFault extends Error {}

function parseSize(text: string | undefined): number {
  const size = text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : Infinity;
  if (size > maxBodyBytes) throw new ProtocolFault(`the broker sent a message of '${text}' bytes`);
  return size;
}

/** Parses the line that a message begins with; undefined when it is one of another kind. */
function parseHead(line: string): MessageHead | undefined {
  const hasHeaders = /^HMSG[ \t]/i.test(line);
  if (!hasHeaders && !/^MSG[ \t]/i.test(line)) return undefined;
  const words = line.trim().split(/[ \t]+/);
  const total = parseSize(words.pop());
  const headerBytes = hasHeaders ? parseSize(words.pop()) : 0;
  const [, subject, sid, reply, ...more] = words;
  if (subject === undefined || sid === undefined || more.length > 0 || headerBytes > total)
    throw new ProtocolFault(`the broker sent a message that begins with '${line.slice(0, 200)}'`);
  return { subject, sid, reply, headerBytes, payloadBytes: total - headerBytes };
}

/** Gathers so many bytes out of pieces. */
interface Gathered {
  readonly parts: Buffer[];
  left: number;
}

/** Creates a parser; `feed` takes the next bytes of the connection. Throws `ProtocolFault`, and is of no use then. */
export function createProtocolParser(sink: ProtocolSink): { feed(bytes: Buffer): void } {
  let line = nothing;
  let isInMessage = false;
  let headers: Gathered = { parts: [], left: 0 };
  let payloadLeft = 0;
  /** The line end behind a payload. */
  let endLeft = 0;

  function takeLine(bytes: Buffer): void {
    const whole = line.length === 0 ? bytes : Buffer.concat([line, bytes]);
    line = nothing;
    const text = whole.toString('utf8', 0, whole.at(-1) === carriageReturn ? whole.length - 1 : whole.length);
    const head = parseHead(text);
    if (head === undefined) return sink.line(text);
    isInMessage = true;
    headers = { parts: [], left: head.headerBytes };
    payloadLeft = head.payloadBytes;
    endLeft = 2;
    sink.begin(head);
  }

  /** Reads a line, or the part of one that is there; returns how far. */
  function readLine(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(lineEnd, at);
    const part = bytes.subarray(at, end === -1 ? bytes.length : end);
    if (line.length + part.length > maxLineBytes) throw new ProtocolFault('the broker sent a line without an end');
    if (end !== -1) takeLine(part);
    else line = Buffer.concat([line, part]);
    return at + part.length + (end === -1 ? 0 : 1);
  }

  /** Reads on in a message: headers, payload, line end. Returns how far. */
  function readMessage(bytes: Buffer, at: number): number {
    if (headers.left > 0) {
      const part = bytes.subarray(at, at + headers.left);
      headers.parts.push(Buffer.from(part));
      headers.left -= part.length;
      return at + part.length;
    }
    if (payloadLeft > 0) {
      const part = bytes.subarray(at, at + payloadLeft);
      payloadLeft -= part.length;
      sink.payload(part);
      return at + part.length;
    }
    if (bytes[at] !== (endLeft === 2 ? carriageReturn : lineEnd))
      throw new ProtocolFault('the broker sent a message that does not end where it should');
    endLeft -= 1;
    if (endLeft === 0) {
      isInMessage = false;
      sink.end(headers.parts.length === 0 ? nothing : Buffer.concat(headers.parts));
    }
    return at + 1;
  }

  return {
    feed(bytes) {
      for (let at = 0; at < bytes.length;) at = isInMessage ? readMessage(bytes, at) : readLine(bytes, at);
    },
  };
}
