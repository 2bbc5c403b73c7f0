import { effect, signal } from '@preact/signals';
import { ApiError, callSession, csrfToken, isConnected, isSignedOut, onDenied } from './client.ts';

export interface SignedIn {
  readonly idUser: string;
  readonly name: string;
  /** 0 for an operator without an account. */
  readonly idAccount: number;
  readonly canExport: boolean;
  readonly isOperator: boolean;
  readonly csrfToken: string;
  /** Absolute timeout of the session, Unix seconds. */
  readonly timestampEnds: string;
  readonly version: string;
  /** The default time zone of exports. */
  readonly timezone: string;
}

/**
 * The signed-in user; `unknown` before the first response, undefined if not signed in. It stays after the session has
 * ended.
 */
export const session = signal<SignedIn | 'unknown' | undefined>('unknown');
/** Number of sign-ins. Requests that failed because the session had ended are repeated when it changes. */
export const signIns = signal(0);

/** The error of reading the session, which is retried. */
export const sessionError = signal<ApiError | undefined>(undefined);

/** Whether the service has another version than these pages. */
export const isOutdated = signal(false);

/** Whether a secret is shown that cannot be shown again: no dialog may cover it. */
export const isShownOnce = signal(false);

/** Minimum interval of renewing the session while the page is in use, and retry interval. */
const renewEveryMs = 60_000;
const retryEveryMs = 3000;

function take(signedIn: SignedIn): void {
  const before = session.value;
  // Another user has signed in, maybe in another window: reload to hide the previous user's data.
  if (typeof before === 'object' && before.idUser !== signedIn.idUser) return location.reload();
  const wasOut = isSignedOut.value;
  if (typeof before === 'object' && before.version !== signedIn.version) isOutdated.value = true;
  csrfToken.value = signedIn.csrfToken;
  isSignedOut.value = false;
  session.value = signedIn;
  if (wasOut || before === undefined) signIns.value += 1;
}

/** Loads the current session. */
async function check(): Promise<void> {
  try {
    const signedIn = await callSession<SignedIn | null>('GET');
    sessionError.value = undefined;
    if (signedIn !== null) return take(signedIn);
    session.value = undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) return;
    sessionError.value = error.status === 401 ? undefined : error;
    if (error.status !== 401) return;
    if (typeof session.value === 'object') isSignedOut.value = true;
    else session.value = undefined;
  }
}

/** Signs in. Errors: `ApiError`. */
export async function signIn(idUser: string, secret: string): Promise<void> {
  take(await callSession<SignedIn>('POST', { idUser, secret }));
}

/** Sets the password of the user, which ends the other sessions. Errors: `ApiError`. */
export async function changePassword(secret: string, password: string): Promise<void> {
  take(await callSession<SignedIn>('POST', { secret, password }, '/console/password'));
}

/** Signs out and clears the drafts. Errors: `ApiError`; the session then continues. */
export async function signOut(): Promise<void> {
  await callSession('DELETE').catch(async (error: unknown) => {
    // A new sign-in in another window has another token.
    if (!(error instanceof ApiError) || error.status !== 403) throw error;
    await check();
    await callSession('DELETE');
  });
  sessionStorage.clear();
  location.assign('/console/');
}

/** Loads the session, renews it while the page is in use, and retries. */
export function startSession(): void {
  onDenied(check);
  void check();
  let renewedMs = performance.now();
  const renew = (): void => {
    if (performance.now() - renewedMs < renewEveryMs || typeof session.value !== 'object') return;
    renewedMs = performance.now();
    void check();
  };
  for (const kind of ['pointerdown', 'keydown']) document.addEventListener(kind, renew, { passive: true });
  // The user may have signed in in another window.
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && isSignedOut.value) void check();
  });
  effect(() => {
    if (isConnected.value && sessionError.value === undefined) return undefined;
    const timer = setInterval(() => void check(), retryEveryMs);
    return () => clearInterval(timer);
  });
}
