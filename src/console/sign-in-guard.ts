import { createBoundedLog } from '../runtime/conditions/bounded-log.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';

/** How wrong secrets are held against whoever gives them. */
export interface LockOutRule {
  /** Wrong secrets that are let pass before the first wait. */
  readonly free: number;
  /** The first wait; each further wrong secret doubles it, up to the longest. Milliseconds. */
  readonly firstMs: number;
  readonly longestMs: number;
  /** Without a wrong secret for so long, those of before are forgotten. Milliseconds. */
  readonly forgetMs: number;
}

/** Counts wrong secrets by key: a user's id, or an address. Times are monotonic, as `performance.now()`. */
export interface LockOut {
  /** Seconds until another try is looked at; 0: now. */
  waitSeconds(key: string, nowMs: number): number;
  /** Counts a wrong secret. */
  fail(key: string, nowMs: number): void;
  /** Forgets the wrong ones: a right secret was given. */
  clear(key: string): void;
}

interface Failures {
  count: number;
  lastMs: number;
}

/** Keys that are remembered; the one whose last failure is longest ago goes first. */
const rememberedKeys = 10_000;

/** Creates a lock-out that has counted nothing. */
export function createLockOut({ free, firstMs, longestMs, forgetMs }: LockOutRule): LockOut {
  const byKey = new Map<string, Failures>();

  function find(key: string, nowMs: number): Failures | undefined {
    const failures = byKey.get(key);
    return failures === undefined || nowMs - failures.lastMs >= forgetMs ? undefined : failures;
  }

  return {
    waitSeconds(key, nowMs) {
      const failures = find(key, nowMs);
      if (failures === undefined || failures.count < free) return 0;
      const waitMs = Math.min(firstMs * 2 ** Math.min(failures.count - free, 30), longestMs);
      return Math.max(0, Math.ceil((failures.lastMs + waitMs - nowMs) / 1000));
    },
    fail(key, nowMs) {
      const count = (find(key, nowMs)?.count ?? 0) + 1;
      // Put in anew, so that the map is in the order of the last failures.
      byKey.delete(key);
      byKey.set(key, { count, lastMs: nowMs });
      if (byKey.size > rememberedKeys) byKey.delete(byKey.keys().next().value ?? '');
    },
    clear: (key) => void byKey.delete(key),
  };
}

/** Who tries to sign in. */
export interface SignInTry {
  readonly idUser: string;
  readonly address: string;
  /** The browser, where this user has signed in with it before. */
  readonly browser: string | undefined;
}

/**
 * Who has to wait after wrong secrets: a browser that its user has signed in with before for its own ones alone, any
 * other for those of the user and of its address. Times are monotonic.
 */
export interface SignInGuard {
  /** Seconds until a try is looked at; 0: now. One that has to wait is counted. */
  waitSeconds(who: SignInTry, nowMs: number): number;
  /** A wrong secret was given. */
  fail(who: SignInTry, nowMs: number): void;
  /** The right secret was given. */
  succeed(who: SignInTry): void;
}

/** A person mistypes a few times; many persons may share an address. */
const ofUser = { free: 5, firstMs: 5000, longestMs: 900_000, forgetMs: 3_600_000 };
const ofAddress = { free: 20, firstMs: 5000, longestMs: 900_000, forgetMs: 3_600_000 };
const logBound = { maxLines: 10, windowMs: 60_000 };
const outcomes = ['success', 'wrong', 'locked_out'] as const;

export interface SignInGuardDependencies {
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Creates the guard. `hasClientAddresses`: clients have addresses of their own, which are counted too. */
export function createSignInGuard(
  { metrics, logger }: SignInGuardDependencies,
  hasClientAddresses: boolean,
): SignInGuard {
  const [users, addresses] = [createLockOut(ofUser), createLockOut(ofAddress)];
  const signIns = metrics.counter('console_sign_ins_total', 'Sign-ins to the console, by how they ended.', ['outcome']);
  // From zero on, so that the first of a kind is seen as a step.
  for (const outcome of outcomes) signIns.inc({ outcome }, 0);
  const count = (outcome: (typeof outcomes)[number]): void => signIns.inc({ outcome });
  const log = createBoundedLog(
    (fields) => logger.warn(fields, 'wrong secrets, the next sign-in has to wait'),
    logBound,
  );
  const isByAddress = ({ browser }: SignInTry): boolean => hasClientAddresses && browser === undefined;

  function find(who: SignInTry, nowMs: number): number {
    const { idUser, address, browser } = who;
    const ofOwn = users.waitSeconds(browser ?? idUser, nowMs);
    return isByAddress(who) ? Math.max(ofOwn, addresses.waitSeconds(address, nowMs)) : ofOwn;
  }

  return {
    waitSeconds(who, nowMs) {
      const waitSeconds = find(who, nowMs);
      if (waitSeconds > 0) count('locked_out');
      return waitSeconds;
    },
    fail(who, nowMs) {
      const { idUser, address, browser } = who;
      count('wrong');
      users.fail(browser ?? idUser, nowMs);
      if (isByAddress(who)) addresses.fail(address, nowMs);
      const waitSeconds = find(who, nowMs);
      if (waitSeconds > 0) log.add({ idUser, ...(hasClientAddresses ? { address } : {}), waitSeconds });
    },
    succeed({ idUser, browser }) {
      count('success');
      users.clear(browser ?? idUser);
    },
  };
}
