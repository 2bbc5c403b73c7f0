import type { ExportApiError } from './envelope.ts';
import { createQuotaCounter, type Quota } from '../../runtime/async/rate-limits.ts';

export type Quotas = ReturnType<typeof createQuotas>;

interface ThrottleOptions {
  readonly quotaUser: readonly Quota[];
  readonly quotaIp: readonly Quota[];
}

const mistakes: readonly Quota[] = [{ limit: 60, windowMs: 60_000 }];
/** Pages of the console poll every few seconds, several at a time. */
const consoleCalls: readonly Quota[] = [
  { limit: 30, windowMs: 1000 },
  { limit: 600, windowMs: 60_000 },
];
const unauthorized: readonly Quota[] = [{ limit: 10, windowMs: 1000 }];

function createLimit(quotas: readonly Quota[], who: string): (key: string) => ExportApiError | undefined {
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
 * Creates the quotas of the export area: those of the options, and fixed ones for the console, refused calls and
 * unauthorized callers unless the option is `off`. Each counts a call and returns a refusal if it is exceeded.
 */
export function createQuotas({ quotaUser, quotaIp }: ThrottleOptions) {
  return {
    ofAddress: createLimit(quotaIp, 'one address'),
    ofUnauthorized: createLimit(quotaIp.length === 0 ? [] : unauthorized, 'an unauthorized caller'),
    ofUser: createLimit(quotaUser, 'one user'),
    ofConsole: createLimit(quotaUser.length === 0 ? [] : consoleCalls, 'the console of one user'),
    ofMistake: createLimit(quotaUser.length === 0 ? [] : mistakes, 'one user, counting those that are refused'),
  };
}
