import { Agent as PlainAgent, request as requestPlain, type IncomingMessage } from 'node:http';
import { Agent as TlsAgent, request as requestTls } from 'node:https';
import { AppError, describeError } from '../runtime/errors.ts';
import { isRecord } from '../runtime/files/checksummed-json.ts';

/**
 * The client of a running service, over HTTP: imports files of events, downloads exports, stores profiles.
 * In: files and options, responses of the service. Out: requests as in docs/api.md, files. Invariant: no event is
 * stored twice (send-batch.ts, import-state.ts); a downloaded file gets its name when it is complete (download.ts).
 * Crash: an import leaves its state next to the input, a download its parts; the same command resumes.
 */

/** A request without redirects. */
interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface HttpResponse {
  readonly status: number;
  /** Returns a header by its lower-case name. */
  readonly header: (name: string) => string | undefined;
  readonly text: string;
}

export interface HttpClient {
  /** Error: `service_away` if no complete response comes in time: the request may have been processed. */
  send(request: HttpRequest): Promise<HttpResponse>;
  /** As `send`, for a streamed body. Ending the iteration closes the connection. */
  open(request: HttpRequest): Promise<{ readonly answer: HttpResponse; readonly body: AsyncIterable<Uint8Array> }>;
  close(): void;
}

const maxAnswerBytes = 16 * 1024 * 1024;

const away = (url: string, cause: unknown): AppError =>
  new AppError('service_away', `no response from ${new URL(url).origin}: ${describeError(cause)}`, { cause });

function headOf({ statusCode = 0, headers }: IncomingMessage): Omit<HttpResponse, 'text'> {
  return {
    status: statusCode,
    header: (name) => {
      const value = headers[name];
      return Array.isArray(value) ? value.join(', ') : value;
    },
  };
}

async function readText(body: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > maxAnswerBytes) throw new Error(`the response is larger than ${maxAnswerBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

async function* readPieces(url: string, body: IncomingMessage): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* body;
  } catch (error) {
    throw away(url, error);
  }
}

/** Creates a client with up to `connections` connections. `timeoutMs`: timeout of an idle connection. */
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
      request.on('timeout', () => request.destroy(new Error(`timed out after ${timeoutMs / 1000} s`)));
      request.on('error', reject);
      request.on('response', resolve);
      request.end(body);
    });
  }

  async function exchange<T>(request: HttpRequest, read: (response: IncomingMessage) => Promise<T>): Promise<T> {
    try {
      return await read(await begin(request));
    } catch (error) {
      throw away(request.url, error);
    }
  }

  return {
    send: (request) => exchange(request, async (response) => ({ ...headOf(response), text: await readText(response) })),
    open: (request) =>
      exchange(request, async (response) => {
        const head = headOf(response);
        const isWanted = head.status === 200 || head.status === 206;
        const text = isWanted ? '' : await readText(response);
        return { answer: { ...head, text }, body: readPieces(request.url, response) };
      }),
    close() {
      plain.destroy();
      tls.destroy();
    },
  };
}

/** Cleans untrusted text for one line of a terminal. */
export function toLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim();
}

/** Parses a JSON object; empty if the text is not one. */
export function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/** Returns the Retry-After of a response, ms, at most an hour. */
export function retryAfterMs({ header }: HttpResponse): number | undefined {
  const text = header('retry-after') ?? '';
  return /^\d{1,6}$/.test(text) ? Math.min(Number(text), 3600) * 1000 : undefined;
}
