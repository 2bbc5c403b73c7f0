import { connect, type Socket } from 'node:net';
import { within } from './wait.ts';

/** A response parsed from a connection's bytes. */
export interface TalkAnswer {
  readonly status: number;
  /** The head, each name in lower case. */
  readonly head: string;
  readonly body: string;
}

/** Parses the responses received over a connection; each must have a length. */
export function readAnswers(text: string): TalkAnswer[] {
  const answers: TalkAnswer[] = [];
  for (let rest = text; rest !== '';) {
    const end = rest.indexOf('\r\n\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(rest)?.[1]);
    if (end === -1 || Number.isNaN(status)) throw new Error(`no answer: ${rest.slice(0, 200)}`);
    const head = rest.slice(0, end).toLowerCase();
    const length = Number(/\r\ncontent-length: (\d+)/.exec(head)?.[1] ?? 0);
    answers.push({ status, head, body: rest.slice(end + 4, end + 4 + length) });
    rest = rest.slice(end + 4 + length);
  }
  return answers;
}

/**
 * Sends bytes on a new connection, ends the sending half as `nc -N` does, and returns all bytes until the server closes
 * it.
 */
export function talk(port: number, text: string): Promise<string> {
  let received = '';
  const socket: Socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('data', (data) => void (received += data.toString('latin1')));
  socket.on('error', () => undefined);
  socket.once('end', () => socket.destroy());
  socket.end(text, 'latin1');
  return within(
    `the server has closed after ${text.slice(0, 100)}`,
    new Promise((resolve) => socket.once('close', () => resolve(received))),
  );
}
