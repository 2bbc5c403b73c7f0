import type { Refusal } from './envelope.ts';
import { createQuotaCounter, type Quota } from '../../runtime/async/rate-limits.ts';

/** The quotas of the export area; each counts a call and answers with the refusal when it is one too many. */
export interface Throttle {
  /** Every call, by the address it comes from. */
  ofAddress(address: string): Refusal | undefined;
  /** Calls without valid authorization, by address. */
  ofUnauthorized(address: string): Refusal | undefined;
  /** Calls of an API user. */
  ofUser(idUser: string): Refusal | undefined;
  /** Calls that a user's pages of the console make. */
  ofConsole(idUser: string): Refusal | undefined;
  /** Calls of an API user that are refused. */
  ofMistake(idUser: string): Refusal | undefined;
}

interface ThrottleOptions {
  readonly quotaUser: readonly Quota[];
  readonly quotaIp: readonly Quota[];
}

const mistakes: readonly Quota[] = [{ limit: 60, windowMs: 60_000 }];
/** Pages ask again every few seconds how exports go on, several of them side by side. */
const consoleCalls: readonly Quota[] = [
  { limit: 30, windowMs: 1000 },
  { limit: 600, windowMs: 60_000 },
];
const unauthorized: readonly Quota[] = [{ limit: 10, windowMs: 1000 }];

type Limit = (key: string) => Refusal | undefined;

function createLimit(quotas: readonly Quota[], who: string): Limit {
  const counter = createQuotaCounter(quotas);
  const limits = quotas.map(({ limit, windowMs }) => `${limit} in ${windowMs / 1000} s`).join(', ');
  return (key) => {
    const retryAfterSeconds = counter.take(key, performance.now());
    return retryAfterSeconds === undefined
      ? undefined
      : { code: 429, detail: `Too many requests of ${who}: the quota is ${limits}`, retryAfterSeconds };
  };
}

/**
 * Creates the quotas: those of the options, and the published ones for the console, mistakes and unauthorized callers
 * where the option is not `off`.
 */
export function createThrottle({ quotaUser, quotaIp }: ThrottleOptions): Throttle {
  return {
    ofAddress: createLimit(quotaIp, 'one address'),
    ofUnauthorized: createLimit(quotaIp.length === 0 ? [] : unauthorized, 'an unauthorized caller'),
    ofUser: createLimit(quotaUser, 'one user'),
    ofConsole: createLimit(quotaUser.length === 0 ? [] : consoleCalls, 'the console of one user'),
    ofMistake: createLimit(quotaUser.length === 0 ? [] : mistakes, 'one user, counting those that are refused'),
  };
}
