import { Agent as PlainAgent, request as requestPlain, type IncomingMessage } from 'node:http';
import { Agent as TlsAgent, request as requestTls } from 'node:https';
import { AppError, describeError } from '../runtime/errors.ts';

/**
 * What a caller does against a running service, by HTTP alone: files of events in, exports out, the addresses and
 * secrets for both.
 *
 * In: files and words of a person, answers of the service. Out: requests as docs/api.md has them, files, and what is
 * said of them. Invariant: an event is never sent in a way that could store it twice (send-batch.ts, import-state.ts);
 * a downloaded file has its name only once it is whole (download.ts). Crash: an import leaves its state beside the
 * input, a download its parts; the same command goes on from them.
 */

/** A request; redirects are not followed. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** An answer, whole. */
export interface HttpAnswer {
  readonly status: number;
  /** A header by its name in lower case; undefined where there is none. */
  readonly header: (name: string) => string | undefined;
  readonly text: string;
}

/** Connections to one service. */
export interface HttpClient {
  /** Error: `service_away` when there is no whole answer in time: what became of the request is unknown. */
  send(request: HttpRequest): Promise<HttpAnswer>;
  /** As `send`, for an answer that is read piece by piece, with the same error. Who breaks off its reading closes the connection. */
  open(request: HttpRequest): Promise<{ readonly answer: HttpAnswer; readonly body: AsyncIterable<Uint8Array> }>;
  close(): void;
}

const maxAnswerBytes = 16 * 1024 * 1024;

const away = (url: string, cause: unknown): AppError =>
  new AppError('service_away', `${new URL(url).origin} gives no answer: ${describeError(cause)}`, { cause });

function headOf({ statusCode = 0, headers }: IncomingMessage): Omit<HttpAnswer, 'text'> {
  return {
    status: statusCode,
    header: (name) => {
      const value = headers[name];
      return Array.isArray(value) ? value.join(', ') : value;
    },
  };
}

async function readText(body: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += (piece as Buffer).length;
    if (bytes > maxAnswerBytes) throw new Error(`the answer has more than ${maxAnswerBytes} bytes`);
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces).toString('utf8');
}

async function* readPieces(url: string, body: IncomingMessage): AsyncGenerator<Uint8Array, void, void> {
  try {
    for await (const piece of body) yield piece as Uint8Array;
  } catch (error) {
    throw away(url, error);
  }
}

/**
 * Creates a client that keeps up to `connections` open. `timeoutMs`: how long a connection may be silent, longer than
 * the service takes for any answer.
 */
export function createHttpClient({
  connections = 4,
  timeoutMs = 30_000,
}: { readonly connections?: number; readonly timeoutMs?: number } = {}): HttpClient {
  const options = { keepAlive: true, maxSockets: connections };
  const [plain, tls] = [new PlainAgent(options), new TlsAgent(options)];

  function begin({ method, url, headers, body }: HttpRequest): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const isTls = url.startsWith('https:');
      const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
      const settings = { method, agent: isTls ? tls : plain, headers: { ...headers, ...length }, timeout: timeoutMs };
      const request = isTls ? requestTls(url, settings) : requestPlain(url, settings);
      request.on('timeout', () => request.destroy(new Error(`silent for ${timeoutMs / 1000} s`)));
      request.on('error', reject);
      request.on('response', resolve);
      request.end(body);
    });
  }

  return {
    async send(request) {
      try {
        const response = await begin(request);
        return { ...headOf(response), text: await readText(response) };
      } catch (error) {
        throw away(request.url, error);
      }
    },
    async open(request) {
      try {
        const response = await begin(request);
        const head = headOf(response);
        const isWanted = head.status === 200 || head.status === 206;
        return {
          answer: { ...head, text: isWanted ? '' : await readText(response) },
          body: readPieces(request.url, response),
        };
      } catch (error) {
        throw away(request.url, error);
      }
    },
    close() {
      plain.destroy();
      tls.destroy();
    },
  };
}

/** A text that a service has answered, as a part of one line: a terminal must not obey it. */
export function toLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim();
}

/** When an answer was made, by its service's clock, Unix milliseconds; undefined where it does not say. */
export function answeredAtMs({ header }: HttpAnswer): number | undefined {
  const atMs = Date.parse(header('date') ?? '');
  return Number.isNaN(atMs) ? undefined : atMs;
}

/** How long an answer asks to wait, milliseconds; undefined where it does not. Never more than an hour. */
export function retryAfterMs({ header }: HttpAnswer): number | undefined {
  const text = header('retry-after') ?? '';
  return /^\d{1,6}$/.test(text) ? Math.min(Number(text), 3600) * 1000 : undefined;
}
