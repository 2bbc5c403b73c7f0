/**
 * Reads nats-server's HTTP monitor. Only an embedded server has one that the service can reach.
 */
async function findJson(url: string, timeoutMs: number): Promise<{ status: number; body: unknown } | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    return { status: response.status, body: await response.json() };
  } catch {
    // Not listening yet, stopped, or stalled: all of them are "no answer".
    return undefined;
  }
}

/**
 * Says whether the server and its JetStream are well: its streams are recovered and can be written to. A full disk
 * freezes a stream until the server restarts; this is where it shows.
 */
export async function isBrokerHealthy(monitorUrl: string, timeoutMs: number): Promise<boolean> {
  const answer = await findJson(`${monitorUrl}/healthz`, timeoutMs);
  return answer?.status === 200;
}

/** Says whether JetStream fsyncs each message before it acknowledges it (`sync_interval: always`). */
export async function readSyncAlways(monitorUrl: string, timeoutMs = 5000): Promise<boolean> {
  const answer = await findJson(`${monitorUrl}/jsz`, timeoutMs);
  const body = answer?.body as { config?: { sync_always?: unknown } } | undefined;
  return body?.config?.sync_always === true;
}
