/**
 * The client that the package exports as `tributary/client`, for Node and browsers, without a dependency.
 *
 * In: the table of operations that `.build/client.mjs` makes from the OpenAPI document. Out: a function per operation.
 * Invariant: no retries, since only the caller knows what may be repeated.
 */
import type { CallOptions, ClientOptions } from './client-options.ts';

/** A row of the table of operations. */
export interface Operation {
  readonly verb: string;
  readonly path: string;
  readonly area: 'import' | 'export';
  readonly signs: 'token' | 'user' | 'nobody';
  /** The body: the member `body` as JSON, or all members as a form. */
  readonly sends: 'json' | 'form' | 'nothing';
  /** The result: the parsed JSON, or the Response. */
  readonly answers: 'json' | 'response';
  readonly headers: readonly string[];
}

type CallParameters = Readonly<Record<string, unknown>>;
type Call = (given?: CallParameters, options?: CallOptions) => Promise<unknown>;

/** A response that is not a success. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly operation: string;
  readonly status: number;
  /** The parsed JSON of the body, or its text. */
  readonly answer: unknown;
  /** The cause as a sentence, if the service sends one. */
  readonly detail: string | undefined;
  /** Wait before a retry, s, if the service sends one. */
  readonly retryAfterSeconds: number | undefined;

  constructor(operation: string, response: Response, answer: unknown) {
    // The import area has the detail in a header, the export area in the envelope.
    const detail = response.headers.get('x-error-detail') ?? detailOf(answer);
    super(`${operation} failed with status ${response.status}: ${detail ?? JSON.stringify(answer)}`);
    this.operation = operation;
    this.status = response.status;
    this.answer = answer;
    this.detail = detail;
    const seconds = response.headers.get('retry-after');
    this.retryAfterSeconds = seconds === null ? undefined : Number(seconds);
  }
}

function detailOf(answer: unknown): string | undefined {
  const { data } = (answer ?? {}) as { data?: { error?: { detail?: unknown } } | null };
  const detail = data?.error?.detail;
  return typeof detail === 'string' ? detail : undefined;
}

/** Returns the pairs of a query or form: one per member of an array, and those of an object under its own names. */
function toPairs(given: object): [string, string][] {
  return Object.entries(given).flatMap(([name, value]: [string, unknown]): [string, string][] => {
    if (value === undefined) return [];
    if (Array.isArray(value)) return value.map((one) => [name, String(one)]);
    if (typeof value === 'object' && value !== null) return toPairs(value);
    return [[name, typeof value === 'string' ? value : JSON.stringify(value)]];
  });
}

/** Distributes the given members over body, path, headers and query. */
function sortGiven({ path, headers }: Operation, { body, ...parameters }: CallParameters) {
  const isInPath = (name: string): boolean => path.includes(`{${name}}`);
  const entries = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return {
    body,
    path: path.replaceAll(/\{(\w+)\}/g, (_all, name: string) => encodeURIComponent(String(parameters[name]))),
    headers: entries.filter(([name]) => headers.includes(name)).map(([name, value]) => [name, String(value)] as const),
    query: toPairs(Object.fromEntries(entries.filter(([name]) => !headers.includes(name) && !isInPath(name)))),
  };
}

function findSignature({ signs }: Operation, { token, idUser, secret }: ClientOptions): string | undefined {
  if (signs === 'token') return token;
  if (signs === 'nobody' || idUser === undefined || secret === undefined) return undefined;
  const bytes = new TextEncoder().encode(`${idUser}:${secret}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

async function readAnswer(response: Response): Promise<unknown> {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function createCall(name: string, operation: Operation, options: ClientOptions): Call {
  const { area, verb, sends, answers } = operation;
  const base = area === 'import' ? options.importUrl : options.exportUrl;
  return async (parameters = {}, { signal } = {}) => {
    if (base === undefined) throw new TypeError(`${name} needs ${area}Url`);
    const { path, headers, query, body } = sortGiven(operation, parameters);
    const words = new URLSearchParams(query);
    const target = `${base.replace(/\/$/, '')}${path}${sends === 'form' || query.length === 0 ? '' : `?${words.toString()}`}`;
    const signature = findSignature(operation, options);
    const response = await (options.fetch ?? fetch)(target, {
      method: verb.toUpperCase(),
      headers: [...headers.map(([key, value]): [string, string] => [key, value]), ...signed(signature)],
      ...(sends === 'form' ? { body: words } : {}),
      ...(sends === 'json' && body !== undefined ? { body: JSON.stringify(body) } : {}),
      ...(signal === undefined ? {} : { signal }),
    });
    if (!response.ok) throw new ApiError(name, response, await readAnswer(response));
    return answers === 'json' ? readAnswer(response) : response;
  };
}

const signed = (signature: string | undefined): [string, string][] =>
  signature === undefined ? [] : [['authorization', signature]];

/** Creates a function per row of a table. */
export function createCalls(
  table: Readonly<Record<string, Operation>>,
  options: ClientOptions,
): Readonly<Record<string, Call>> {
  return Object.fromEntries(
    Object.entries(table).map(([name, operation]) => [name, createCall(name, operation, options)]),
  );
}
