/**
 * Tasks of the export stage that one host runs for all that share its stores.
 *
 * In: schedules, webhooks, notices, and requests that have ended on any host. Out: requests of slots, messages to
 * webhooks, files to destinations, and the removal of expired requests and audit entries.
 * Where several hosts share the stores, the holder of the lease `tasks` runs them. Two holders may overlap for a
 * moment: the records refuse a second request of a slot, and a message may be sent twice under its id, as after a crash.
 * Crash: another host runs them after the lease time; each task finds what is left to do.
 */
import { once } from 'node:events';
import type { AuditLog } from '../audit/audit-log.ts';
import { startSweeper } from '../reports/store.ts';
import { withAnySignal } from '../runtime/async/in-parallel.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import type { Lease } from '../runtime/store/held-lease.ts';
import type { Leases } from '../runtime/store/leases.ts';
import { removeOldClaims } from './jobs/claims.ts';
import { startDeliverer, type DelivererDependencies } from './deliver/deliverer.ts';
import { startNoticeNotifier } from './notify/notice-notifier.ts';
import { startNotifier, type NotifierDependencies } from './notify/notifier.ts';
import { startSlotRunner, type SlotRunnerDependencies } from './schedules/slot-runner.ts';

interface TasksDependencies extends SlotRunnerDependencies {
  readonly webhooks: Omit<NotifierDependencies, 'store'>;
  readonly destinations: Omit<DelivererDependencies, 'store'>;
  /** The leases of the hosts that share the stores; undefined: only this process runs the tasks. */
  readonly leases: Leases | undefined;
  /** Its expired entries are removed. */
  readonly audit?: Pick<AuditLog, 'sweep'> | undefined;
}

export interface Tasks extends Stoppable {
  /** Called with a request that has ended, on any host. */
  onEnd(id: number): void;
  /** Called when a run of a schedule was asked for here. Another host finds it at its next check. */
  onAsked(): void;
  notices(): readonly Problem[];
}

/** Interval of the removal of claims that killed hosts have left, ms. */
const oldClaimsEveryMs = 600_000;
/** Interval of the removal of old entries of the audit log, ms. */
const auditSweepMs = 3_600_000;
/** Wait before the lease is tried again after an error or a loss, ms. */
const retryMs = 1000;

function startHere({ webhooks, destinations, leases, audit, ...dependencies }: TasksDependencies): Tasks {
  const { store, clock, logger, loaded, lakeDir, access } = dependencies;
  const notifier = startNotifier({ ...webhooks, store });
  const deliverer = startDeliverer({ ...destinations, store });
  let missed: Promise<void> | undefined;
  void loaded.then(() => {
    missed = notifier.deliverMissed();
    deliverer.deliverMissed();
  });
  const slots = startSlotRunner(dependencies);
  const noticeNotifier = startNoticeNotifier({ ...webhooks, lakeDir, access, listStops: () => slots.stops() });
  const sweeper = startSweeper(store, clock, logger, (job) => slots.isHeld(job) || deliverer.isHeld(job));
  const tidying = startPollLoop(() => (leases === undefined ? undefined : removeOldClaims(store, leases)), {
    everyMs: oldClaimsEveryMs,
    pausesFirst: true,
    onError: (error) => logger.warn({ error: describeError(error) }, 'cannot remove old claims, will retry'),
  });
  const sweepingAudit = startPollLoop(() => audit?.sweep(), {
    everyMs: auditSweepMs,
    onError: (error) => logger.warn({ error: describeError(error) }, 'cannot remove old audit entries, will retry'),
  });
  return {
    onEnd(id) {
      notifier.deliver(id);
      deliverer.deliver(id);
      slots.onEnd();
    },
    onAsked: () => slots.onEnd(),
    notices: () => [...slots.notices(), ...notifier.notices(), ...deliverer.notices()],
    async stop() {
      const parts = [sweepingAudit, tidying, sweeper, slots, noticeNotifier, notifier, deliverer];
      for (const part of parts) await part.stop();
      await missed;
    },
  };
}

/** Starts the tasks, at once or while this host has the lease. */
export function startTasks(dependencies: TasksDependencies): Tasks {
  const { leases, logger } = dependencies;
  if (leases === undefined) return startHere(dependencies);
  let running: Tasks | undefined;

  async function run({ epoch, lost }: Lease, stopping: AbortSignal): Promise<void> {
    const tasks = startHere(dependencies);
    running = tasks;
    logger.info({ epoch }, 'tasks of all hosts started');
    await withAnySignal([lost, stopping], async (ended) => {
      if (!ended.aborted) await once(ended, 'abort');
    });
    running = undefined;
    await tasks.stop();
    logger.info({ epoch, isLost: lost.aborted }, 'tasks of all hosts stopped');
  }

  async function hold(signal: AbortSignal): Promise<void> {
    try {
      await leases?.hold('tasks', (lease) => run(lease, signal), { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  const holding = startPollLoop(hold, {
    everyMs: retryMs,
    onError: (error) => logger.warn({ error: describeError(error) }, 'cannot take the lease of tasks, will retry'),
  });
  return {
    onEnd: (id) => running?.onEnd(id),
    onAsked: () => running?.onAsked(),
    notices: () => running?.notices() ?? [],
    stop: () => holding.stop(),
  };
}
