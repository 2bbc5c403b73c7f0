import { createBoundedLog } from '../runtime/conditions/bounded-log.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { createLockOut } from './lock-out.ts';

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
