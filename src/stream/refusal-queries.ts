import type { StreamConnection } from './connection.ts';

// Rejected requests stay on the host that rejected them. Each host answers queries about its own, over the broker.

/** A query after the newest rejected requests of an app, or an order to remove those of some apps, or of all. */
export type RefusalQuery =
  | { readonly idApp: number; readonly most: number }
  | { readonly removeApps: readonly number[] | 'all' };

/** The response of one host: its newest records, or whether it has removed any. */
interface HostResponse {
  readonly host: string;
  readonly records: readonly object[];
  readonly removed?: boolean;
}

type RefusalResponse = Omit<HostResponse, 'host'>;

/** Time in which hosts respond, ms. */
const responseMs = 300;
/** Bytes of the records in a response: a message of the broker has at most 1 MiB by default. */
const maxBytes = 512 * 1024;

const subjectOf = (streamName: string): string => `tributary.${streamName}.refusals`;

/** Returns the first records that fit into a response. */
function cut(records: readonly object[]): readonly object[] {
  let bytes = 0;
  const first = records.findIndex((record) => (bytes += Buffer.byteLength(JSON.stringify(record))) > maxBytes);
  return first === -1 ? records : records.slice(0, first);
}

/** Answers the queries as a host: one of its processes responds to each. An asker names a host that does not respond. */
export function serveRefusalQueries(
  { nats }: StreamConnection,
  streamName: string,
  host: string,
  respond: (query: RefusalQuery) => Promise<RefusalResponse>,
): { stop(): void } {
  const subscription = nats.subscribe(subjectOf(streamName), {
    queue: `refusals-${host}`,
    callback(failed, message) {
      if (failed !== null) return;
      Promise.resolve()
        .then(() => respond(message.json<RefusalQuery>()))
        .then(({ records, ...rest }) => void message.respond(JSON.stringify({ host, records: cut(records), ...rest })))
        .catch(() => undefined);
    },
  });
  return { stop: () => subscription.unsubscribe() };
}

/** Asks all hosts; returns the responses of 0.3 s, or the first `hosts` of them. None without the broker. */
export async function askHosts(
  { nats }: StreamConnection,
  streamName: string,
  query: RefusalQuery,
  hosts: number,
): Promise<readonly HostResponse[]> {
  try {
    const options = { strategy: 'count', maxMessages: Math.max(1, hosts), maxWait: responseMs } as const;
    const responses: HostResponse[] = [];
    for await (const message of await nats.requestMany(subjectOf(streamName), JSON.stringify(query), options))
      responses.push(message.json<HostResponse>());
    return responses;
  } catch {
    return [];
  }
}
