import type { Logger } from '../logger.ts';

/** Heartbeat interval, ms: with a check per second, one every three seconds. Ten seconds count as unresponsive. */
const defaultSilenceMs = 2500;

/** Creates a heartbeat: passes a state when it changes, and else at an interval, since each write costs. */
export function createHeartbeat(silenceMs = defaultSilenceMs) {
  let sent: string | undefined;
  let sentAtMs = 0;
  return {
    /** Calls `send` if `text` is new or the last call is too long ago. If `send` throws, the state is not passed. */
    send(text: string, send: () => void): void {
      const nowMs = performance.now();
      if (text === sent && nowMs - sentAtMs < silenceMs) return;
      send();
      sent = text;
      sentAtMs = nowMs;
    },
  };
}

export type Heartbeat = ReturnType<typeof createHeartbeat>;

/** A process with heartbeats. */
export interface ReportingProcess {
  readonly name: string;
  /** Time of the last report, or of the start. */
  readonly reportedAtMs: number;
  /** Kills it, so that another is started. */
  renew(): void;
}

/** Number of consecutive checks without a report before a process is killed. */
const patience = 30;

/**
 * Creates the watch that kills unresponsive processes, which hold requests without a response. It counts checks, not
 * time: after a suspension of the machine, every process has half a minute again.
 */
export function createLivenessWatch(logger: Logger) {
  let seen = new Map<string, { readonly reportedAtMs: number; readonly looks: number }>();
  return {
    /** Checks the running processes; called once per second. */
    check(processes: readonly ReportingProcess[]): void {
      const now = new Map<string, { readonly reportedAtMs: number; readonly looks: number }>();
      for (const process of processes) {
        const { name, reportedAtMs } = process;
        const before = seen.get(name);
        const looks = before?.reportedAtMs === reportedAtMs ? before.looks + 1 : 0;
        now.set(name, { reportedAtMs, looks });
        if (looks < patience) continue;
        logger.error({ process: name, silentLooks: looks }, 'process unresponsive, restarting it');
        now.delete(name);
        process.renew();
      }
      seen = now;
    },
  };
}

export type LivenessWatch = ReturnType<typeof createLivenessWatch>;
