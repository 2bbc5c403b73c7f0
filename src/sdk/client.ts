/**
 * The client that the package exports as `tributary/client`: what Node and browsers can run, without a dependency.
 *
 * In: the table of operations that `.build/client.mjs` makes of the OpenAPI document, with a type for each. Out: a function
 * for each operation. Invariant: what is called is what the document describes; nothing is tried again, since only the
 * caller knows what may be.
 */
import type { CallOptions, ClientOptions } from './client-options.ts';

/** An operation, as the table has it. */
export interface Operation {
  readonly verb: string;
  readonly path: string;
  readonly area: 'import' | 'export';
  readonly signs: 'token' | 'user' | 'nobody';
  /** What is sent as a body: the member `body` as JSON, or everything that is given as a form. */
  readonly sends: 'json' | 'form' | 'nothing';
  /** Whether the answer is JSON; anything else is given back as the Response that it is. */
  readonly answers: 'json' | 'response';
  readonly headers: readonly string[];
}

type Given = Readonly<Record<string, unknown>>;
type Call = (given?: Given, options?: CallOptions) => Promise<unknown>;

/** An answer that is no success. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly operation: string;
  readonly status: number;
  /** The body: an object where it is JSON, otherwise its text. */
  readonly answer: unknown;
  /** What is wrong, in a sentence; undefined where the service does not say. */
  readonly detail: string | undefined;
  /** After how many seconds it may be tried again; undefined where the service does not say. */
  readonly retryAfterSeconds: number | undefined;

  constructor(operation: string, response: Response, answer: unknown) {
    // The import area answers with one word, and says the rest in a header; the export area in the answer's envelope.
    const detail = response.headers.get('x-error-detail') ?? detailOf(answer);
    super(`${operation} was answered with ${response.status}: ${detail ?? JSON.stringify(answer)}`);
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

/** Values as a query or a form has them: each member of a set by itself, and those of an object under their own names. */
function toPairs(given: Given): [string, string][] {
  return Object.entries(given).flatMap(([name, value]): [string, string][] => {
    if (value === undefined) return [];
    if (Array.isArray(value)) return value.map((one) => [name, String(one)]);
    if (typeof value === 'object' && value !== null) return toPairs(value as Given);
    return [[name, typeof value === 'string' ? value : JSON.stringify(value)]];
  });
}

/** What is given, by where it goes. */
function sortGiven({ path, headers }: Operation, { body, ...given }: Given) {
  const isInPath = (name: string): boolean => path.includes(`{${name}}`);
  const entries = Object.entries(given).filter(([, value]) => value !== undefined);
  return {
    body,
    path: path.replaceAll(/\{(\w+)\}/g, (_all, name: string) => encodeURIComponent(String(given[name]))),
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
  return async (given = {}, { signal } = {}) => {
    if (base === undefined) throw new TypeError(`${name} needs ${area}Url`);
    const { path, headers, query, body } = sortGiven(operation, given);
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

/** Creates the functions of a table. */
export function createCalls(
  table: Readonly<Record<string, Operation>>,
  options: ClientOptions,
): Readonly<Record<string, Call>> {
  return Object.fromEntries(
    Object.entries(table).map(([name, operation]) => [name, createCall(name, operation, options)]),
  );
}
