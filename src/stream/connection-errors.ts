import { errors } from '@nats-io/transport-node';
import type { Logger } from '../runtime/logger.ts';
import { findRefusal, type Refusal } from './broker-errors.ts';

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
