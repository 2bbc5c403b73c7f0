import { createRateLimitedLog } from '../runtime/problems/rate-limited-log.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';

/** Lockout policy after failed sign-ins. */
export interface LockOutRule {
  /** Number of wrong secrets before the first wait. */
  readonly free: number;
  /** First wait and maximum wait, ms. Each further wrong secret doubles it. */
  readonly firstMs: number;
  readonly maxDelayMs: number;
  /** Time after which wrong secrets are forgotten, ms. */
  readonly forgetMs: number;
}

interface Failures {
  count: number;
  lastMs: number;
}

/** Maximum number of keys; the one with the oldest failure is dropped first. */
const rememberedKeys = 10_000;

/** Creates a count of wrong secrets by user id or address. Times are of `performance.now()`. */
export function createLockOut({ free, firstMs, maxDelayMs, forgetMs }: LockOutRule) {
  const byKey = new Map<string, Failures>();

  function find(key: string, nowMs: number): Failures | undefined {
    const failures = byKey.get(key);
    return failures === undefined || nowMs - failures.lastMs >= forgetMs ? undefined : failures;
  }

  return {
    /** Returns the remaining wait, s. */
    waitSeconds(key: string, nowMs: number): number {
      const failures = find(key, nowMs);
      if (failures === undefined || failures.count < free) return 0;
      const waitMs = Math.min(firstMs * 2 ** Math.min(failures.count - free, 30), maxDelayMs);
      return Math.max(0, Math.ceil((failures.lastMs + waitMs - nowMs) / 1000));
    },
    fail(key: string, nowMs: number): void {
      const count = (find(key, nowMs)?.count ?? 0) + 1;
      // Re-inserted to keep the map in the order of the last failures.
      byKey.delete(key);
      byKey.set(key, { count, lastMs: nowMs });
      if (byKey.size > rememberedKeys) byKey.delete(byKey.keys().next().value ?? '');
    },
    clear: (key: string): void => void byKey.delete(key),
  };
}

export interface SignInTry {
  /** What wrong secrets are counted by: the id of the user, or an unknown or ambiguous login. */
  readonly key: string;
  /** The user in the log. */
  readonly idUser: string;
  readonly address: string;
  /** Id of a browser in which this user has signed in before. */
  readonly browser: string | undefined;
}

/** A person mistypes a few times; many persons may share an address. */
const ofUser = { free: 5, firstMs: 5000, maxDelayMs: 900_000, forgetMs: 3_600_000 };
const ofAddress = { free: 20, firstMs: 5000, maxDelayMs: 900_000, forgetMs: 3_600_000 };
const logBound = { maxLines: 10, windowMs: 60_000 };
const outcomes = ['success', 'wrong', 'locked_out'] as const;

/**
 * Creates the guard, which delays sign-ins after wrong secrets. A known browser of the user waits for its own failures
 * only; others wait for those of the user and, if clients have distinct addresses, of their address.
 */
export function createSignInGuard(
  { metrics, logger }: { readonly metrics: Metrics; readonly logger: Logger },
  hasClientAddresses: boolean,
) {
  const [users, addresses] = [createLockOut(ofUser), createLockOut(ofAddress)];
  const signIns = metrics.counter(
    'console_sign_ins_total',
    'Sign-ins to the console, by result; locked_out: rejected after wrong secrets.',
    ['outcome'],
  );
  // Starts all counters at zero, so that the first increment is visible.
  for (const outcome of outcomes) signIns.inc({ outcome }, 0);
  const count = (outcome: (typeof outcomes)[number]): void => signIns.inc({ outcome });
  const log = createRateLimitedLog((fields) => logger.warn(fields, 'sign-in locked after wrong secrets'), logBound);
  const isByAddress = ({ browser }: SignInTry): boolean => hasClientAddresses && browser === undefined;

  function find(who: SignInTry, nowMs: number): number {
    const { key, address, browser } = who;
    const ofOwn = users.waitSeconds(browser ?? key, nowMs);
    return isByAddress(who) ? Math.max(ofOwn, addresses.waitSeconds(address, nowMs)) : ofOwn;
  }

  return {
    /** Returns the remaining wait, s, and counts the attempt if it has to wait. */
    waitSeconds(who: SignInTry, nowMs: number): number {
      const waitSeconds = find(who, nowMs);
      if (waitSeconds > 0) count('locked_out');
      return waitSeconds;
    },
    fail(who: SignInTry, nowMs: number): void {
      const { key, idUser, address, browser } = who;
      count('wrong');
      users.fail(browser ?? key, nowMs);
      if (isByAddress(who)) addresses.fail(address, nowMs);
      const waitSeconds = find(who, nowMs);
      if (waitSeconds > 0) log.add({ idUser, ...(hasClientAddresses ? { address } : {}), waitSeconds });
    },
    succeed({ key, browser }: SignInTry): void {
      count('success');
      users.clear(browser ?? key);
    },
  };
}

export type SignInGuard = ReturnType<typeof createSignInGuard>;
