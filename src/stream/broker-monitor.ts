import type { Logger } from '../runtime/logger.ts';
import { openConnection, type StreamConnection } from './connection.ts';

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
