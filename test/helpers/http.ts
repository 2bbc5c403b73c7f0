import { request, type Agent, type IncomingHttpHeaders } from 'node:http';

/** A request sent exactly as given, with no headers but Host and the length added. */
export interface RawRequest {
  readonly verb: string;
  readonly path: string;
  /** A list is sent as several headers of the name. */
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: Uint8Array;
  /** Sent in pieces, without a length. */
  readonly chunked?: boolean;
  readonly agent?: Agent;
}

export interface RawAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const pieceBytes = 4096;
/** Longer than any request of the service takes. */
const answerMs = 40_000;

/** Sends a request and reads the complete response; rejects if the connection ends before, or after 40 s. */
export function sendRaw(port: number, raw: RawRequest): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const length = raw.chunked === true ? {} : { 'content-length': String(raw.body.length) };
    const sent = request(
      {
        host: '127.0.0.1',
        port,
        method: raw.verb,
        path: raw.path,
        headers: { ...length, ...raw.headers },
        ...(raw.agent === undefined ? {} : { agent: raw.agent }),
      },
      (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.once('end', () =>
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: Buffer.concat(chunks).toString() }),
        );
        answer.once('error', reject);
      },
    );
    sent.once('error', reject);
    const timer = setTimeout(
      () => sent.destroy(new Error(`timed out waiting until ${raw.verb} ${raw.path} is answered`)),
      answerMs,
    );
    sent.once('close', () => clearTimeout(timer));
    if (raw.chunked === true) {
      for (let start = 0; start < raw.body.length; start += pieceBytes)
        sent.write(raw.body.subarray(start, start + pieceBytes));
      sent.end();
    } else {
      sent.end(raw.body);
    }
  });
}
