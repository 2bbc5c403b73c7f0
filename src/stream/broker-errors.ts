import { JetStreamApiError } from '@nats-io/jetstream';
import { errors } from '@nats-io/transport-node';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import type { Logger } from '../runtime/logger.ts';

/** Error codes of nats-server without space: limits of the account or the server, or a failed write. */
const noRoomCodes: ReadonlySet<number> = new Set([
  10_002, // resource limits exceeded for account
  10_023, // insufficient resources
  10_027, // maximum number of streams reached
  10_028, // insufficient memory resources available
  10_047, // insufficient storage resources available
  10_077, // maximum bytes or messages exceeded, or the store failed
  10_122, // stream max bytes exceeds account limit
]);

/** A refusal in the broker's own words, and the next step of its operator. */
export interface BrokerDenial {
  readonly words: string;
  readonly todo: string;
}

/** Rights that the service's user needs, as the operator's next step. */
export const requiredRightsTodo =
  'Let the user of the service publish to $JS.API.> and tributary.>, and subscribe to _INBOX.>, tributary.> and $JS.EVENT.ADVISORY.STREAM.>, in the configuration of the broker. A running service then resumes.';
const credentialsTodo = 'Check the user and password, or the token, in TRIBUTARY_NATS_URL.';
const roomTodo =
  'Give the account more storage for JetStream, or lower TRIBUTARY_STREAM_MAX_BYTES, which the broker reserves for the stream.';
const jetStreamTodo =
  'Enable JetStream for the account in the configuration of the broker, or set a user of another account in TRIBUTARY_NATS_URL.';
const awayTodo = 'Check that the broker runs, then retry.';

function findCause<T>(error: unknown, kind: new (...args: never[]) => T): T | undefined {
  if (error instanceof kind) return error;
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof kind ? cause : undefined;
}

/** Returns the refusal of a broker that knows the service and denies it something; undefined for other errors. */
export function findDenial(error: unknown): BrokerDenial | undefined {
  const violation = findCause(error, errors.PermissionViolationError);
  if (violation !== undefined) return { words: violation.message, todo: requiredRightsTodo };
  const stranger =
    findCause(error, errors.AuthorizationError) ?? findCause(error, errors.UserAuthenticationExpiredError);
  return stranger === undefined ? undefined : { words: stranger.message, todo: credentialsTodo };
}

export function isNoRoom(error: unknown): error is JetStreamApiError {
  return error instanceof JetStreamApiError && noRoomCodes.has(error.code);
}

/** The library exports no class for this error. */
function isJetStreamMissing(error: unknown): error is Error {
  return error instanceof Error && error.name === 'JetStreamNotEnabled';
}

/** Wraps an error of the NATS libraries: `broker_refused` with the broker's reason, or `broker_away` (no response). */
export function wrapBrokerError(error: unknown, doing: string): AppError {
  if (error instanceof AppError) return error;
  const wrap = (code: 'broker_refused' | 'broker_away', how: string, hint?: string): AppError =>
    new AppError(code, `${doing}: ${how}`, { cause: error, ...(hint === undefined ? {} : { hint }) });
  const brokerDenial = findDenial(error);
  if (brokerDenial !== undefined)
    return wrap('broker_refused', `the broker denies it: ${brokerDenial.words}`, brokerDenial.todo);
  if (isJetStreamMissing(error))
    return wrap('broker_refused', `the account has no JetStream: ${error.message}`, jetStreamTodo);
  if (isNoRoom(error))
    return wrap('broker_refused', `the broker's storage is full: ${error.message} (${error.code})`, roomTodo);
  if (error instanceof JetStreamApiError) {
    const how = `the broker denies it: ${error.message} (${error.code})`;
    return error.status < 500
      ? wrap('broker_refused', how, 'Check the log of the broker about the stream and the account.')
      : wrap('broker_away', how);
  }
  const isLate = error instanceof errors.TimeoutError;
  return wrap('broker_away', isLate ? 'no response from the broker' : 'the broker is unreachable', awayTodo);
}

/** Runs work, and throws its errors as those of the service. */
export async function wrapErrors<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw wrapBrokerError(error, doing);
  }
}

/** Describes work that the broker keeps denying; undefined for an error of another kind. */
export function describeDenied(error: unknown, doing: string): Problem | undefined {
  const wrapped = wrapBrokerError(error, doing);
  return isAppError(wrapped, 'broker_refused')
    ? { code: 'broker_permission_denied', message: wrapped.message, action: wrapped.hint ?? '' }
    : undefined;
}

/** Time for which a denial is reported after it was last seen, ms: the service retries more often than that. */
const refusalHoldsMs = 15_000;
const rememberedErrors = 100;

/** Creates the record of the errors that the broker reports to one connection. */
export function createConnectionErrors(logger: Logger) {
  let refused: { readonly refusal: BrokerDenial; readonly atMs: number } | undefined;
  /** When each error was last seen, by its text: a repeated one is logged when it begins. */
  const lastSeenMs = new Map<string, number>();

  function isNew(error: Error): boolean {
    // Each request has its own inbox.
    const words = error.message.replace(/(_INBOX\.).*/, '$1>');
    const nowMs = performance.now();
    const beforeMs = lastSeenMs.get(words);
    if (beforeMs === undefined && lastSeenMs.size >= rememberedErrors) lastSeenMs.clear();
    lastSeenMs.set(words, nowMs);
    return beforeMs === undefined || nowMs - beforeMs >= refusalHoldsMs;
  }

  return {
    record(error: Error): void {
      const brokerDenial = findDenial(error);
      // A denied subscription fails where it is needed.
      const isSubscription = error instanceof errors.PermissionViolationError && error.operation === 'subscription';
      if (brokerDenial !== undefined && !isSubscription) refused = { refusal: brokerDenial, atMs: performance.now() };
      logger[isNew(error) ? 'warn' : 'debug']({ error: error.message }, 'broker reported an error');
    },
    refusal: (): BrokerDenial | undefined =>
      refused !== undefined && performance.now() - refused.atMs < refusalHoldsMs ? refused.refusal : undefined,
    /** Forgets the refusal: a new connection has new rights. */
    clearRefusal(): void {
      refused = undefined;
    },
  };
}
