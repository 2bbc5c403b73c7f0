import type { Logger } from '../runtime/logger.ts';
import { openConnection, type StreamConnection } from './connection.ts';

/**
 * Asks nats-server how it is, as its system user. The server's HTTP monitor would answer every local user, without
 * credentials; the system account answers only whoever knows the password that the server was started with.
 */
export interface BrokerMonitor {
  /**
   * Says whether the server and its JetStream are well: its streams are recovered and can be written to. A full disk
   * freezes a stream until the server restarts; this is where it shows. No answer in time is "not well".
   */
  isHealthy(timeoutMs: number): Promise<boolean>;
  /** Says whether JetStream fsyncs each message before it acknowledges it (`sync_interval: always`). */
  readSyncAlways(timeoutMs?: number): Promise<boolean>;
  close(): Promise<void>;
}

/** The name of the server's system user. */
export const systemUser = 'system';

async function findAnswer({ nats }: StreamConnection, what: string, timeoutMs: number): Promise<Readonly<Record<string, unknown>> | undefined> {
  try {
    const answer = await nats.request(`$SYS.REQ.SERVER.${nats.info?.server_id ?? ''}.${what}`, '', { timeout: timeoutMs });
    return (answer.json() as { data?: Record<string, unknown> }).data;
  } catch {
    // Not listening yet, stopped, or stalled: all of them are "no answer".
    return undefined;
  }
}

/** Opens the monitor of the server at a local port; `broker_away` when it is not there now. */
export async function openBrokerMonitor(port: number, password: string, logger: Logger): Promise<BrokerMonitor> {
  const connection = await openConnection({ url: `nats://127.0.0.1:${port}`, user: systemUser, password, name: 'tributary-monitor', logger });
  return {
    async isHealthy(timeoutMs) {
      const health = await findAnswer(connection, 'HEALTHZ', timeoutMs);
      return health?.['status_code'] === 200;
    },
    async readSyncAlways(timeoutMs = 5000) {
      const jetStream = (await findAnswer(connection, 'JSZ', timeoutMs)) as { config?: { sync_always?: unknown } } | undefined;
      return jetStream?.config?.sync_always === true;
    },
    close: () => connection.close(),
  };
}
