import { JetStreamApiError } from '@nats-io/jetstream';
import { errors } from '@nats-io/transport-node';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * nats-server's error codes that mean "there is no room": limits of the account or the server reached, or the disk
 * refused the write.
 */
const noRoomCodes: ReadonlySet<number> = new Set([
  10_002, // resource limits exceeded for account
  10_023, // insufficient resources
  10_027, // maximum number of streams reached
  10_028, // insufficient memory resources available
  10_047, // insufficient storage resources available
  10_077, // maximum bytes or messages exceeded, or the store failed
  10_122, // stream max bytes exceeds account limit
]);

/** Something that the broker refuses, in its own words, and what its operator can do. */
export interface Refusal {
  readonly words: string;
  readonly todo: string;
}

/** The rights that the service's user needs, as the operator's next step. */
export const rightsTodo =
  'Let the user of the service publish to $JS.API.> and tributary.>, and subscribe to _INBOX.>, tributary.> and $JS.EVENT.ADVISORY.STREAM.>, in the configuration of the broker: a running service then goes on by itself.';
const credentialsTodo = 'See that TRIBUTARY_NATS_URL has the user and password, or the token, that the broker knows.';
const roomTodo =
  'Give the account more storage for JetStream, or lower TRIBUTARY_STREAM_MAX_BYTES, which the broker sets aside for the stream.';
const jetStreamTodo =
  'Enable JetStream for the account in the configuration of the broker, or name a user of another account in TRIBUTARY_NATS_URL.';

/** What the broker itself said: the error, or what caused it. */
function findCause<T>(error: unknown, kind: new (...args: never[]) => T): T | undefined {
  if (error instanceof kind) return error;
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof kind ? cause : undefined;
}

/**
 * The broker's own words when it knows the service and does not let it do something; undefined for every other error.
 */
export function findRefusal(error: unknown): Refusal | undefined {
  const violation = findCause(error, errors.PermissionViolationError);
  if (violation !== undefined) return { words: violation.message, todo: rightsTodo };
  const stranger =
    findCause(error, errors.AuthorizationError) ?? findCause(error, errors.UserAuthenticationExpiredError);
  return stranger === undefined ? undefined : { words: stranger.message, todo: credentialsTodo };
}

/** Says whether a publish was not stored because there is no room for it. */
export function isNoRoom(error: unknown): error is JetStreamApiError {
  return error instanceof JetStreamApiError && noRoomCodes.has(error.code);
}

/** The library exports no class for it. */
function isJetStreamMissing(error: unknown): error is Error {
  return error instanceof Error && error.name === 'JetStreamNotEnabled';
}

/**
 * Turns an error of the NATS libraries, caught at the edge of the stream, into one of the service's own.
 * `broker_refused`: the broker is there and will not do it, for the reason in its own words. `broker_away`: it does not
 * answer, or not now.
 */
export function wrapBrokerError(error: unknown, doing: string): AppError {
  if (error instanceof AppError) return error;
  const refusal = findRefusal(error);
  if (refusal !== undefined)
    return new AppError('broker_refused', `${doing}: the broker refuses it: ${refusal.words}`, {
      cause: error,
      hint: refusal.todo,
    });
  if (isJetStreamMissing(error))
    return new AppError('broker_refused', `${doing}: the account has no JetStream: ${error.message}`, {
      cause: error,
      hint: jetStreamTodo,
    });
  if (isNoRoom(error))
    return new AppError('broker_refused', `${doing}: the broker has no room: ${error.message} (${error.code})`, {
      cause: error,
      hint: roomTodo,
    });
  if (error instanceof JetStreamApiError) {
    const code = error.status < 500 ? 'broker_refused' : 'broker_away';
    return new AppError(code, `${doing}: the broker refuses it: ${error.message} (${error.code})`, {
      cause: error,
      ...(code === 'broker_refused'
        ? { hint: 'See what the broker and its log say about the stream and the account.' }
        : {}),
    });
  }
  if (error instanceof errors.TimeoutError)
    return new AppError('broker_away', `${doing}: no answer from the broker`, {
      cause: error,
      hint: 'See whether the broker runs, and try again.',
    });
  return new AppError('broker_away', `${doing}: the broker is away`, {
    cause: error,
    hint: 'See whether the broker runs, and try again.',
  });
}

/** The problem of work that the broker refuses again and again; undefined for an error of another kind. */
export function describeRefused(error: unknown, doing: string): Problem | undefined {
  const wrapped = wrapBrokerError(error, doing);
  return isAppError(wrapped, 'broker_refused')
    ? { code: 'broker_refuses', what: wrapped.message, todo: wrapped.hint ?? '' }
    : undefined;
}

/** What the broker has reported to one connection: each error is logged when it begins, the last refusal is kept. */
export interface ConnectionErrors {
  record(error: Error): void;
  /** What the broker has lately refused to this connection: a right that it lacks, or its credentials. */
  refusal(): Refusal | undefined;
  /** Forgets the refusal: a connection made anew is asked anew. */
  clearRefusal(): void;
}

/**
 * How long a refusal is reported after it was last seen, milliseconds: whatever the service may not do, it tries more
 * often than that.
 */
const refusalHoldsMs = 15_000;
/** Wordings of errors remembered for the log; a few among all that a broker has. */
const rememberedErrors = 100;

/** Creates the record of a connection without errors. */
export function createConnectionErrors(logger: Logger): ConnectionErrors {
  let refused: { readonly refusal: Refusal; readonly atMs: number } | undefined;
  /** When each error was last seen, by its words. One that comes again and again is logged when it begins. */
  const lastSeenMs = new Map<string, number>();

  function isNew(error: Error): boolean {
    // Each try for an answer has an inbox of its own.
    const words = error.message.replace(/(_INBOX\.).*/, '$1>');
    const nowMs = performance.now();
    const beforeMs = lastSeenMs.get(words);
    if (beforeMs === undefined && lastSeenMs.size >= rememberedErrors) lastSeenMs.clear();
    lastSeenMs.set(words, nowMs);
    return beforeMs === undefined || nowMs - beforeMs >= refusalHoldsMs;
  }

  return {
    record(error) {
      const refusal = findRefusal(error);
      // What may not be subscribed to fails where it is needed, and is done without where it is not.
      const isSubscription = error instanceof errors.PermissionViolationError && error.operation === 'subscription';
      if (refusal !== undefined && !isSubscription) refused = { refusal, atMs: performance.now() };
      logger[isNew(error) ? 'warn' : 'debug']({ error: error.message }, 'broker reported an error');
    },
    refusal: () =>
      refused !== undefined && performance.now() - refused.atMs < refusalHoldsMs ? refused.refusal : undefined,
    clearRefusal() {
      refused = undefined;
    },
  };
}
