import type { Logger } from '../logger.ts';

/**
 * What one process tells another, or a file, of its state: at once when it has changed, and otherwise now and then, as a
 * sign of life. To write and to read the same again each second costs an idle service more than all else it does.
 */
export interface News {
  /** Calls `tell` when `text` is new, or the last sign of life is long ago. What `tell` throws is told again. */
  pass(text: string, tell: () => void): void;
}

/**
 * From one sign of life to the next, milliseconds. Whoever looks every second gives one every three: well within the ten
 * after which a silent process is taken for a stuck one.
 */
const defaultSilenceMs = 2500;

/** Creates the memory of what was told last. */
export function createNews(silenceMs = defaultSilenceMs): News {
  let told: string | undefined;
  let toldAtMs = 0;
  return {
    pass(text, tell) {
      const nowMs = performance.now();
      if (text === told && nowMs - toldAtMs < silenceMs) return;
      tell();
      told = text;
      toldAtMs = nowMs;
    },
  };
}

/** A process that reports every few seconds, as its supervisor sees it. */
export interface ReportingProcess {
  readonly name: string;
  /** When it reported last, or was started. */
  readonly reportedAtMs: number;
  /** Ends it, for another to be started. */
  renew(): void;
}

/** Ends processes that run and do not report any more: they hold requests of clients, which would never be answered. */
export interface SilenceWatch {
  /** Looks at those that run; called once a second. */
  look(processes: readonly ReportingProcess[]): void;
}

/** Consecutive looks without a report after which a process is ended. */
const patience = 30;

/**
 * Creates the watch. It counts its own looks, not the time: after this process, or the whole machine, was stopped for
 * a while, every process has the full half minute again.
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
