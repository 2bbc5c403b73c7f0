/**
 * Claims: which host runs an export request.
 *
 * In: requests in progress; the leases of the hosts that share the reports. Out: runs, on one host at a time. A lease
 * saves work only: the record of the request refuses an attempt that was overtaken (reports/job-attempts.ts).
 * Crash: the lease falls silent, and another host takes it after the lease time.
 */
import { isInProgress } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { withAnySignal } from '../../runtime/async/in-parallel.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Leases } from '../../runtime/store/leases.ts';

/** Wait before a refused claim is tried again, ms. */
const retryMs = 2000;
const nameOf = (id: number): string => `job-${id}`;

/** Creates the claims of this host. `leases`: undefined if no other host runs these requests. */
export function createClaims(
  store: Pick<ReportStore, 'lastRead'>,
  leases: Pick<Leases, 'tryHold' | 'remove'> | undefined,
  logger: Logger,
) {
  const refusedMs = new Map<number, number>();

  return {
    /** Reports whether a claim is worth a try: it was not refused a moment ago. */
    mayTry: (id: number): boolean => performance.now() - (refusedMs.get(id) ?? -Infinity) > retryMs,
    /** Forgets a refusal: the host that had the claim has released it. */
    retry: (id: number): void => void refusedMs.delete(id),
    /**
     * Runs work on a request if this host gets the claim, with a signal that also aborts when the claim is lost.
     * Removes the claim of a request that has ended. Never throws.
     */
    async run(id: number, signal: AbortSignal, work: (until: AbortSignal) => Promise<void>): Promise<void> {
      if (leases === undefined) return await work(signal);
      refusedMs.set(id, performance.now());
      try {
        await leases.tryHold(nameOf(id), async ({ lost }) => {
          refusedMs.delete(id);
          await withAnySignal([signal, lost], work);
        });
        const job = store.lastRead(id);
        if (job !== undefined && !isInProgress(job)) await leases.remove([nameOf(id)]);
      } catch (error) {
        logger.warn({ idReport: id, error: describeError(error) }, 'cannot claim export request, will retry');
      }
    },
  };
}

/** Removes the claims that hosts have left of requests that have ended. */
export async function removeOldClaims(store: Pick<ReportStore, 'find'>, leases: Leases): Promise<void> {
  for (const { name } of await leases.list()) {
    const [, id] = /^job-(\d+)$/.exec(name) ?? [];
    if (id === undefined) continue;
    const job = await store.find(Number(id));
    if (job === undefined || !isInProgress(job)) await leases.remove([name]);
  }
}
