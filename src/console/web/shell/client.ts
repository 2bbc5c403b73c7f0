import { signal } from '@preact/signals';
// Generated from the OpenAPI document by the build.
import type { Answers } from 'api-answers';

/** Arguments of a call; a list repeats its name. */
export type CallArguments = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Renders arguments as a query or a form body. */
export function renderArguments(callArguments: CallArguments): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(callArguments))
    for (const each of value === undefined ? [] : typeof value === 'string' ? [value] : value) text.append(name, each);
  return text.toString();
}

interface ErrorInfo {
  readonly waitSeconds?: number | undefined;
  readonly exports?: readonly { readonly idRawExport: string }[];
}

/** An error response of the service. Status 0 means that no complete response arrived. */
export class ApiError extends Error {
  readonly status: number;
  /** Delay before a retry, s. */
  readonly waitSeconds: number | undefined;
  /** Ids of the exports that use up the user's limit. */
  readonly exports: readonly string[];

  constructor(status: number, detail: string, { waitSeconds, exports = [] }: ErrorInfo = {}) {
    super(detail);
    this.status = status;
    this.waitSeconds = waitSeconds;
    this.exports = exports.map(({ idRawExport }) => idRawExport);
  }

  /** Reports whether a retry may succeed. */
  get mayPass(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Whether the last call reached the service. */
export const isConnected = signal(true);
/** Whether the session has ended; the pages stay open until the user signs in again. */
export const isSignedOut = signal(false);
/** Value of the CSRF header; session.ts sets it. */
export const csrfToken = signal('');

let lookWhoIsSignedIn: () => Promise<void> = async () => undefined;

/** Sets the function that updates `isSignedOut` and `csrfToken` after a 403. */
export function onDenied(look: () => Promise<void>): void {
  lookWhoIsSignedIn = look;
}

/** Returns a text for a response without a detail. */
function hintOf(status: number): string {
  if (status === 403) return 'Permission denied. If your permissions changed, sign in again.';
  if (status === 404) return 'Not found.';
  if (status === 429) return 'Too many requests. Wait a moment, then try again.';
  if (status >= 500) return 'The service is unavailable. Try again in a few seconds.';
  return `The service returned status ${status}`;
}

async function toError(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => ({}))) as {
    readonly data?: { readonly error?: { readonly detail?: string; readonly info?: ErrorInfo } } | null;
  };
  const { detail, info } = body.data?.error ?? {};
  const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
  const waitSeconds = Number.isFinite(retryAfter) ? retryAfter : undefined;
  return new ApiError(response.status, detail ?? hintOf(response.status), { waitSeconds, ...info });
}

async function readJson<T>(response: Response): Promise<T> {
  if (!response.ok) throw await toError(response);
  return (await response.json()) as T;
}

/** Sends a request. Errors: `ApiError` with status 0 if the service is not reachable. */
async function send(url: string, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(url, {
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
      ...init,
      headers: { 'x-csrf-token': csrfToken.value },
    });
    isConnected.value = true;
    return response;
  } catch (cause) {
    if (init.signal?.aborted === true) throw cause;
    isConnected.value = false;
    throw new ApiError(0, "Can't reach the service. Your input is kept; try again when the service is back.");
  }
}

/** Sends a request that needs a session, once more if another window has started a new one. */
async function sendSignedIn(url: string, init: RequestInit): Promise<Response> {
  const shown = csrfToken.value;
  const response = await send(url, init);
  if (response.status !== 403) return response;
  await lookWhoIsSignedIn();
  if (isSignedOut.value) throw new ApiError(401, 'Your session has ended. Sign in, then try again.');
  return csrfToken.value === shown ? response : await send(url, init);
}

export interface CallOptions {
  readonly method?: 'GET' | 'POST';
  readonly callArguments?: CallArguments;
  readonly signal?: AbortSignal;
}

/** Opens a response of the API, which may be a stream. Errors: `ApiError`. */
export async function openApi(
  url: string,
  { method = 'GET', callArguments = {}, signal: wanted }: CallOptions = {},
): Promise<Response> {
  const text = renderArguments(callArguments);
  const isPost = method === 'POST';
  const target = isPost || text === '' ? url : `${url}?${text}`;
  const response = await sendSignedIn(target, {
    method,
    ...(isPost ? { body: text } : {}),
    ...(wanted === undefined ? {} : { signal: wanted }),
  });
  if (response.ok) return response;
  throw await toError(response);
}

/** Limit for a response, ms: beyond it the connection is dead, as after a suspension of the machine. */
const maxCallMs = 120_000;

/** Data of a method's response, from the OpenAPI document. */
export type AnswerOf<Path extends keyof Answers> = Answers[Path];

/** Calls a method of the API and returns its data. Errors: `ApiError`. */
export async function callApi<Path extends keyof Answers>(
  url: Path,
  options: CallOptions = {},
): Promise<AnswerOf<Path>> {
  const late = AbortSignal.timeout(maxCallMs);
  const wanted = options.signal;
  try {
    const response = await openApi(url, {
      ...options,
      signal: wanted === undefined ? late : AbortSignal.any([wanted, late]),
    });
    return ((await response.json()) as { readonly data: AnswerOf<Path> }).data;
  } catch (cause) {
    if (cause instanceof ApiError || wanted?.aborted === true) throw cause;
    throw new ApiError(0, 'The response was incomplete. Try again in a few seconds.');
  }
}

/** Loads a cacheable JSON file. Errors: `ApiError`. */
export async function loadJson<T>(url: string): Promise<T> {
  return await readJson<T>(await send(url, { cache: 'default' }));
}

/** Calls `/console/session`; its body is JSON. */
export async function callSession<T>(
  method: 'GET' | 'POST' | 'DELETE',
  body?: unknown,
  path = '/console/session',
): Promise<T> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  return (await readJson<{ readonly data: T }>(await send(path, { method, ...sent }))).data;
}
