import type { Logger } from '../runtime/logger.ts';
import { openConnection, type StreamConnection } from './connection.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import type { Refusal } from './broker-errors.ts';

/** The server's health. `silent`: no answer in the given time. */
export type BrokerHealth = { readonly state: 'well' | 'silent' } | { readonly state: 'unwell'; readonly error: string };

/**
 * Asks nats-server for its health, as its system user. The server's HTTP monitor would answer every local user, without
 * credentials; the system account answers only whoever knows the password that the server was started with.
 */
export interface BrokerMonitor {
  /**
   * Asks whether the server and its JetStream are healthy: its streams are recovered and can be written to. A full disk
   * freezes a stream until the server restarts; this is where it shows.
   */
  readHealth(timeoutMs: number): Promise<BrokerHealth>;
  /** Says whether JetStream fsyncs each message before it acknowledges it (`sync_interval: always`). */
  readSyncAlways(timeoutMs?: number): Promise<boolean>;
  close(): Promise<void>;
}

/** The name of the server's system user. */
export const systemUser = 'system';

async function findAnswer<T>(
  { nats }: StreamConnection,
  what: string,
  timeoutMs: number,
): Promise<Partial<T> | undefined> {
  try {
    const answer = await nats.request(`$SYS.REQ.SERVER.${nats.info?.server_id ?? ''}.${what}`, '', {
      timeout: timeoutMs,
    });
    return answer.json<{ data?: Partial<T> }>().data;
  } catch {
    // Not listening yet, stopped, or stalled: all of them are "no answer".
    return undefined;
  }
}

/** Opens the monitor of the server at a local port; `broker_away` when it is not there now. */
export async function openBrokerMonitor(port: number, password: string, logger: Logger): Promise<BrokerMonitor> {
  const connection = await openConnection({
    url: `nats://127.0.0.1:${port}`,
    user: systemUser,
    password,
    name: 'tributary-monitor',
    logger,
  });
  return {
    async readHealth(timeoutMs) {
      const health = await findAnswer<{ status_code: number; status: string; error: string }>(
        connection,
        'HEALTHZ',
        timeoutMs,
      );
      if (health === undefined) return { state: 'silent' };
      if (health.status_code === 200) return { state: 'well' };
      return { state: 'unwell', error: health.error ?? health.status ?? 'no reason given' };
    },
    async readSyncAlways(timeoutMs = 5000) {
      const jetStream = await findAnswer<{ config: { sync_always?: boolean } }>(connection, 'JSZ', timeoutMs);
      return jetStream?.config?.sync_always === true;
    },
    close: () => connection.close(),
  };
}

/**
 * Knows whether the broker answers, also while nobody sends or reads, and what it refuses: an idle service must not be
 * the last to find out.
 */
interface BrokerPing extends Stoppable {
  problems(): readonly Problem[];
}

/** Between pings while the broker answers, and while it does not, milliseconds. A connection that ends is seen at once. */
const pingEveryMs = { well: 3000, silent: 1000 } as const;
/** A busy broker's answer waits behind an fsync; one this late is no answer. */
const answerMs = 2000;

/** The problem while the broker does not answer: of whoever pings it, and of whoever cannot publish to it. */
export const brokerSilent: Problem = {
  code: 'broker_silent',
  what: 'the broker does not take events',
  todo: 'Nothing, if it is restarting or stalled for a moment: it goes on by itself. Otherwise look at its log lines and its disk; of an external one, at the cluster that TRIBUTARY_NATS_URL names.',
};

/** The problem of something that the broker refuses to this process. */
function refusalProblem({ words, todo }: Refusal): Problem {
  return { code: 'broker_refuses', what: `the broker refuses what the service asks of it: ${words}`, todo };
}

/** Starts to ping the broker every few seconds. */
export function startBrokerPing(connection: StreamConnection): BrokerPing {
  let answers = true;
  const loop = startPollLoop(
    async () => {
      await connection.ping(answerMs);
      answers = true;
    },
    {
      everyMs: () => pingEveryMs[answers ? 'well' : 'silent'],
      onError() {
        answers = false;
      },
    },
  );
  return {
    problems() {
      const refusal = connection.refusal();
      return [...(answers ? [] : [brokerSilent]), ...(refusal === undefined ? [] : [refusalProblem(refusal)])];
    },
    // Not waited for: a stalled broker leaves the ping without an answer.
    stop: async () => void loop.stop(),
  };
}
