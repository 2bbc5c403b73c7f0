import type { StreamConnection } from './connection.ts';

// Rejected requests stay on the host that rejected them. Each host answers queries about its own, over the broker.

/** A query after the newest rejected requests of an app, or an order to remove those of some apps, or of all. */
export type RefusalQuery =
  | { readonly idApp: number; readonly most: number }
  | { readonly removeApps: readonly number[] | 'all' };

/** The answer of one host: its newest records, or whether it has removed any. */
interface HostAnswer {
  readonly host: string;
  readonly records: readonly object[];
  readonly removed?: boolean;
}

type RefusalAnswer = Omit<HostAnswer, 'host'>;

/** Time in which hosts answer, ms. */
const answerMs = 300;
/** Bytes of the records in an answer: a message of the broker has at most 1 MiB by default. */
const maxBytes = 512 * 1024;

const subjectOf = (streamName: string): string => `tributary.${streamName}.refusals`;

/** Keeps the first records that fit into an answer. */
function cut(records: readonly object[]): readonly object[] {
  let bytes = 0;
  const first = records.findIndex((record) => (bytes += Buffer.byteLength(JSON.stringify(record))) > maxBytes);
  return first === -1 ? records : records.slice(0, first);
}

/** Answers the queries as a host, of whose processes one answers each. Without an answer, an asker names the host. */
export function serveRefusalQueries(
  { nats }: StreamConnection,
  streamName: string,
  host: string,
  answer: (query: RefusalQuery) => Promise<RefusalAnswer>,
): { stop(): void } {
  const subscription = nats.subscribe(subjectOf(streamName), {
    queue: `refusals-${host}`,
    callback(failed, message) {
      if (failed !== null) return;
      Promise.resolve()
        .then(() => answer(message.json<RefusalQuery>()))
        .then(({ records, ...rest }) => void message.respond(JSON.stringify({ host, records: cut(records), ...rest })))
        .catch(() => undefined);
    },
  });
  return { stop: () => subscription.unsubscribe() };
}

/** Asks all hosts; returns the answers within 0.3 s, or once as many have come as `hosts`. None without the broker. */
export async function askHosts(
  { nats }: StreamConnection,
  streamName: string,
  query: RefusalQuery,
  hosts: number,
): Promise<readonly HostAnswer[]> {
  try {
    const options = { strategy: 'count', maxMessages: Math.max(1, hosts), maxWait: answerMs } as const;
    const answers: HostAnswer[] = [];
    for await (const message of await nats.requestMany(subjectOf(streamName), JSON.stringify(query), options))
      answers.push(message.json<HostAnswer>());
    return answers;
  } catch {
    return [];
  }
}
