import { AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { wrapBrokerError } from './broker-errors.ts';
import { openConnection, type StreamConnection } from './connection.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';

export type BrokerHealth = { readonly state: 'well' | 'silent' } | { readonly state: 'unwell'; readonly error: string };

export const systemUser = 'system';
/** Time for a response, ms: that of a busy broker waits for an fsync. */
const answerMs = 2000;
/** Time after the last of several responses in which no other one came, ms. */
const stallMs = 500;

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

const syncUnchecked: Problem = {
  code: 'broker_sync_unchecked',
  message: 'it is unknown whether the servers of the cluster fsync events before they acknowledge them',
  action: 'Set sync_interval: always on every server, and TRIBUTARY_NATS_SYSTEM_URL so that the service checks it.',
};

interface ServerReport {
  readonly server: { readonly name: string };
  readonly data?: { readonly disabled?: boolean; readonly config?: { readonly sync_always?: boolean } };
}

/** Delay between checks of the servers of a cluster, ms. */
const syncCheckEveryMs = 60_000;

/**
 * Watches whether every server of an external cluster fsyncs events before it acknowledges them. `systemUrl`: addresses
 * with a user of the system account. Error at a start: `broker_unsafe` if a server does not.
 */
export async function watchClusterSync(systemUrl: string | undefined, logger: Logger, everyMs = syncCheckEveryMs) {
  if (systemUrl === undefined)
    return { warnings: (): readonly Problem[] => [syncUnchecked], stop: async () => undefined };
  const connection = await openConnection({ url: systemUrl, name: 'tributary-cluster-monitor', logger });
  let warnings: readonly Problem[] = [];

  async function listUnsafe(): Promise<readonly string[]> {
    const reports = await connection.nats.requestMany('$SYS.REQ.SERVER.PING.JSZ', '', {
      maxWait: answerMs,
      stall: stallMs,
    });
    const found: ServerReport[] = [];
    for await (const report of reports) found.push(report.json<ServerReport>());
    if (found.length === 0) throw new AppError('broker_away', 'no server answers the system account');
    return found
      .filter(({ data }) => data?.disabled !== true && data?.config?.sync_always !== true)
      .map(({ server }) => server.name);
  }

  async function check(): Promise<void> {
    const unsafe = await listUnsafe();
    warnings = unsafe.map((server) => ({
      code: 'broker_sync_unsafe',
      subject: server,
      message: `the server ${server} of the cluster acknowledges events before its fsync`,
      action: 'Set sync_interval: always in the jetstream block of its configuration, then restart it.',
    }));
  }

  const unsafe = await listUnsafe().catch(async (error: unknown) => {
    await connection.close();
    throw wrapBrokerError(error, 'check the servers of the cluster');
  });
  if (unsafe.length > 0) {
    await connection.close();
    throw new AppError('broker_unsafe', `${unsafe.join(', ')} would acknowledge events before the fsync`, {
      hint: 'Set sync_interval: always in the jetstream block of each server, then restart it.',
    });
  }
  const loop = startPollLoop(check, {
    everyMs,
    // The start has just checked.
    pausesFirst: true,
    onError: () => void (warnings = [syncUnchecked]),
  });
  return {
    warnings: (): readonly Problem[] => warnings,
    async stop(): Promise<void> {
      await loop.stop();
      await connection.close();
    },
  };
}

/** Delay between pings while the broker answers, and while it does not, ms. */
const pingEveryMs = { well: 3000, silent: 1000 } as const;
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
