import { signal } from '@preact/signals';
// Made of the OpenAPI document by the build.
import type { Answers } from 'api-answers';

/** Arguments of a call; a list is given as the same name again and again. */
export type CallArguments = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Renders arguments as a query or a form body. */
export function renderArguments(given: CallArguments): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(given))
    for (const each of value === undefined ? [] : typeof value === 'string' ? [value] : value) text.append(name, each);
  return text.toString();
}

interface ErrorInfo {
  readonly waitSeconds?: number | undefined;
  readonly exports?: readonly { readonly idRawExport: string }[];
}

/** An answer that is no success: what the service says, and how to go on. Status 0: there was no whole answer. */
export class ApiError extends Error {
  readonly status: number;
  /** Seconds after which the same may be asked again. */
  readonly waitSeconds: number | undefined;
  /** Ids of the exports in progress that leave no room for another. */
  readonly exports: readonly string[];

  constructor(status: number, detail: string, { waitSeconds, exports = [] }: ErrorInfo = {}) {
    super(detail);
    this.status = status;
    this.waitSeconds = waitSeconds;
    this.exports = exports.map(({ idRawExport }) => idRawExport);
  }

  /** Whether the same may be answered otherwise later: not reached, too often, not able to now, or a proxy says so. */
  get mayPass(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Whether the last call reached the service. */
export const isConnected = signal(true);
/** The session is over, and its user has to sign in again; the pages stay as they are meanwhile. */
export const isSignedOut = signal(false);
/** What requests show beside the cookie; session.ts sets it. */
export const csrfToken = signal('');

let lookWhoIsSignedIn: () => Promise<void> = async () => undefined;

/** Sets what a 403 is looked into by: it sets `isSignedOut` and `csrfToken` as they are now. */
export function onDenied(look: () => Promise<void>): void {
  lookWhoIsSignedIn = look;
}

interface Envelope {
  readonly data?: {
    readonly error?: { readonly detail?: string; readonly info?: ErrorInfo };
  } | null;
}

/** What to do about an answer, where the service itself says nothing of it. */
function hintOf(status: number): string {
  if (status === 403) return 'You may not do this. If your rights were changed, sign in again.';
  if (status === 404) return 'It is not there any more.';
  if (status === 429) return 'Too many requests at once. Wait a little, then try again.';
  if (status >= 500) return 'The service is not available now. Try again in a few seconds.';
  return `The answer was ${status}`;
}

async function toError(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => ({}))) as Envelope;
  const { detail, info } = body.data?.error ?? {};
  const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
  const waitSeconds = Number.isFinite(retryAfter) ? retryAfter : undefined;
  return new ApiError(response.status, detail ?? hintOf(response.status), { waitSeconds, ...info });
}

/** Sends a request of a page's; `ApiError` with status 0 where the service is not reached. */
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
    throw new ApiError(0, 'The service is not reached. What you have typed is kept; try again when it is back.');
  }
}

/** Sends a request that needs a session. One that was begun in another window meanwhile will do. */
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
  readonly given?: CallArguments;
  readonly signal?: AbortSignal;
}

/** Opens a response of the API, such as one that goes on; `ApiError` for every refusal. */
export async function openApi(
  url: string,
  { method = 'GET', given = {}, signal: wanted }: CallOptions = {},
): Promise<Response> {
  const text = renderArguments(given);
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

/** No method answers so late: the connection is dead, as after a sleep of the machine, and nobody says so. */
const longestCallMs = 120_000;

/** The data of what a method of the API answers, as the OpenAPI document has it. */
export type AnswerOf<Path extends keyof Answers> = Answers[Path];

/** Calls a method of the API and returns the data of its answer. `ApiError` for every refusal. */
export async function callApi<Path extends keyof Answers>(
  url: Path,
  options: CallOptions = {},
): Promise<AnswerOf<Path>> {
  const late = AbortSignal.timeout(longestCallMs);
  const wanted = options.signal;
  try {
    const response = await openApi(url, {
      ...options,
      signal: wanted === undefined ? late : AbortSignal.any([wanted, late]),
    });
    return ((await response.json()) as { readonly data: AnswerOf<Path> }).data;
  } catch (cause) {
    if (cause instanceof ApiError || wanted?.aborted === true) throw cause;
    throw new ApiError(0, 'The answer of the service did not come whole. Try again in a few seconds.');
  }
}

/** Loads what is the same for everybody and kept until it changes; `ApiError` where it does not come. */
export async function loadFile<T>(url: string): Promise<T> {
  const response = await send(url, { cache: 'default' });
  if (!response.ok) throw await toError(response);
  return (await response.json()) as T;
}

/** Calls `/console/session` with a method of its own; its body is JSON. */
export async function callSession<T>(method: 'GET' | 'POST' | 'DELETE', body?: unknown): Promise<T> {
  const response = await send('/console/session', {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw await toError(response);
  return ((await response.json()) as { readonly data: T }).data;
}
