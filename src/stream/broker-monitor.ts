import type { Logger } from '../runtime/logger.ts';
import { openConnection, type StreamConnection } from './connection.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';

export type BrokerHealth = { readonly state: 'well' | 'silent' } | { readonly state: 'unwell'; readonly error: string };

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
    // Not listening yet, stopped, or stalled.
    return undefined;
  }
}

export type BrokerMonitor = Awaited<ReturnType<typeof openBrokerMonitor>>;

/** Opens the monitor of a local nats-server as its system user: HTTP has no credentials. Error: `broker_away`. */
export async function openBrokerMonitor(port: number, password: string, logger: Logger) {
  const connection = await openConnection({
    url: `nats://127.0.0.1:${port}`,
    user: systemUser,
    password,
    name: 'tributary-monitor',
    logger,
  });
  return {
    /** Returns whether the server's streams are recovered and can be written to: a full disk freezes a stream. */
    async readHealth(timeoutMs: number): Promise<BrokerHealth> {
      type Answer = { status_code: number; status: string; error: string };
      const health = await findAnswer<Answer>(connection, 'HEALTHZ', timeoutMs);
      if (health === undefined) return { state: 'silent' };
      if (health.status_code === 200) return { state: 'well' };
      return { state: 'unwell', error: health.error ?? health.status ?? 'no reason given' };
    },
    /** Reports whether JetStream fsyncs each message before its ack (`sync_interval: always`). */
    async readSyncAlways(timeoutMs = 5000): Promise<boolean> {
      const jetStream = await findAnswer<{ config: { sync_always?: boolean } }>(connection, 'JSZ', timeoutMs);
      return jetStream?.config?.sync_always === true;
    },
    close: () => connection.close(),
  };
}

/** Delay between pings while the broker answers, and while it does not, ms. */
const pingEveryMs = { well: 3000, silent: 1000 } as const;
/** Time for a response, ms: that of a busy broker waits for an fsync. */
const answerMs = 2000;

export const brokerSilentProblem: Problem = {
  code: 'broker_unreachable',
  message: 'the broker does not accept events',
  action:
    'No action needed if this resolves: it may be restarting. Otherwise check the log lines that begin with nats-server and its disk, or the cluster of TRIBUTARY_NATS_URL.',
};

/** Pings the broker every few seconds, so that an idle service notices an unreachable one. */
export function startBrokerPing(connection: StreamConnection) {
  let isResponsive = true;
  const ping = async (): Promise<void> => {
    await connection.ping(answerMs);
    isResponsive = true;
  };
  const loop = startPollLoop(ping, {
    everyMs: () => pingEveryMs[isResponsive ? 'well' : 'silent'],
    onError: () => void (isResponsive = false),
  });
  return {
    problems(): readonly Problem[] {
      const problems: Problem[] = isResponsive ? [] : [brokerSilentProblem];
      const brokerDenial = connection.refusal();
      if (brokerDenial === undefined) return problems;
      const what = `the broker denies an operation: ${brokerDenial.words}`;
      return [...problems, { code: 'broker_permission_denied', message: what, action: brokerDenial.todo }];
    },
    // Not awaited: a stalled broker leaves the ping without a response.
    stop: async (): Promise<void> => void loop.stop(),
  };
}
