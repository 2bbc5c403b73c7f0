import type { Logger } from '../logger.ts';

/** A process that reports about once a second, as its supervisor sees it. */
export interface ReportingProcess {
  readonly name: string;
  /** When it reported last, or was started. */
  readonly reportedAtMs: number;
  /** Ends it, for another to be started. */
  renew(): void;
}

/**
 * Ends processes that run and say nothing any more: what they hold, such as requests of clients, would be held for as
 * long.
 */
export interface SilenceWatch {
  /** Looks at those that run; called once a second. */
  look(processes: readonly ReportingProcess[]): void;
}

/** Looks in a row without a report, after which a process is ended. */
const patience = 30;

/**
 * Creates the watch. It counts its own looks, not the time: after this process, or the whole machine, has stood still,
 * everybody has the same half minute again.
 */
export function createSilenceWatch(logger: Logger): SilenceWatch {
  let seen = new Map<string, { readonly reportedAtMs: number; readonly looks: number }>();
  return {
    look(processes) {
      const now = new Map<string, { readonly reportedAtMs: number; readonly looks: number }>();
      for (const process of processes) {
        const { name, reportedAtMs } = process;
        const before = seen.get(name);
        const looks = before?.reportedAtMs === reportedAtMs ? before.looks + 1 : 0;
        now.set(name, { reportedAtMs, looks });
        if (looks < patience) continue;
        logger.error({ process: name, silentLooks: looks }, 'process does not report, it is ended and started again');
        now.delete(name);
        process.renew();
      }
      seen = now;
    },
  };
}
