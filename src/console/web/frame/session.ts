import { effect, signal } from '@preact/signals';
import { ApiError, callSession, csrfToken, isConnected, isSignedOut, onDenied } from './client.ts';

/** Who is signed in, as the service says. */
export interface SignedIn {
  readonly idUser: string;
  readonly name: string;
  /** 0: an operator who belongs to none. */
  readonly idAccount: number;
  readonly canExport: boolean;
  readonly isOperator: boolean;
  readonly csrfToken: string;
  /** Unix seconds: the session ends then whatever happens. */
  readonly timestampEnds: string;
  readonly version: string;
  /** The zone in which the service reads days where none is named. */
  readonly timezone: string;
}

/** `unknown` until the service has answered; undefined: nobody. It stays while the session is over and nobody has signed out. */
export const session = signal<SignedIn | 'unknown' | undefined>('unknown');
/** Counts sign-ins: what failed for the want of a session is asked again. */
export const signIns = signal(0);

/** Why the service cannot say who is signed in, where it cannot; asked again until it can. */
export const cannotTell = signal<ApiError | undefined>(undefined);

/** The service is of another version than the one whose pages these are. */
export const isOutdated = signal(false);

/**
 * Something is on the page that is shown this once, such as a new secret: nothing may come over it before it was kept,
 * not even the question for that very secret.
 */
export const isShownOnce = signal(false);

/** While somebody is at work the session is renewed, at most so often. */
const renewEveryMs = 60_000;
const retryEveryMs = 3000;

function take(signedIn: SignedIn): void {
  const before = session.value;
  // Somebody else has signed in, here or in another window: what was shown is not theirs.
  if (typeof before === 'object' && before.idUser !== signedIn.idUser) return location.reload();
  const wasOut = isSignedOut.value;
  if (typeof before === 'object' && before.version !== signedIn.version) isOutdated.value = true;
  csrfToken.value = signedIn.csrfToken;
  isSignedOut.value = false;
  session.value = signedIn;
  if (wasOut || before === undefined) signIns.value += 1;
}

/** Asks the service who is signed in. */
async function look(): Promise<void> {
  try {
    take(await callSession<SignedIn>('GET'));
    cannotTell.value = undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) return;
    cannotTell.value = error.status === 401 ? undefined : error;
    if (error.status !== 401) return;
    if (typeof session.value === 'object') isSignedOut.value = true;
    else session.value = undefined;
  }
}

/** Signs in; `ApiError` with what is wrong. Another user than before finds no page as that one left it. */
export async function signIn(idUser: string, secret: string): Promise<void> {
  take(await callSession<SignedIn>('POST', { idUser, secret }));
}

/** Signs out, and forgets what was on the pages; `ApiError` where nobody was, so that the session goes on. */
export async function signOut(): Promise<void> {
  await callSession('DELETE').catch(async (error: unknown) => {
    // Whoever has signed in anew in another window shows another token.
    if (!(error instanceof ApiError) || error.status !== 403) throw error;
    await look();
    await callSession('DELETE');
  });
  sessionStorage.clear();
  location.assign('/console/');
}

/** Begins to know who is signed in, and keeps knowing it. */
export function startSession(): void {
  onDenied(look);
  void look();
  let renewedMs = performance.now();
  const renew = (): void => {
    if (performance.now() - renewedMs < renewEveryMs || typeof session.value !== 'object') return;
    renewedMs = performance.now();
    void look();
  };
  for (const kind of ['pointerdown', 'keydown']) document.addEventListener(kind, renew, { passive: true });
  // Somebody may have signed in in another window.
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && isSignedOut.value) void look();
  });
  // Until the service is back.
  effect(() => {
    if (isConnected.value && cannotTell.value === undefined) return undefined;
    const timer = setInterval(() => void look(), retryEveryMs);
    return () => clearInterval(timer);
  });
}
