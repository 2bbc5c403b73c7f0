import { openLakeReader } from '../../src/demo/demo-report.ts';
import { timeOrderedEventIds } from '../../src/datasets/event-id.ts';
import { renderLine } from './render-line.ts';
import { isAppError } from '../../src/runtime/errors.ts';
import { idParam, type Ledger, type StoredEvent } from './ledger.ts';
import { openServicePublisher } from './service-publisher.ts';

/** A message as ingest publishes it under heavy load. */
const eventsOfMessage = 250;
const publishesInFlight = 8;
/** Makes a line about 500 bytes long, as those of real clients are. */
const filler = 'the quick brown fox jumps over the lazy dog and back again; '.repeat(3);

/** Events waiting in the stream, published without HTTP. */
export interface Backlog {
  /** Events whose publish was confirmed. */
  readonly events: number;
  readonly bytes: number;
  /** Publishes this number of events, or as many as fit; returns false if the stream was full before. */
  add(events: number): Promise<boolean>;
  close(): Promise<void>;
}

function renderMessage(first: number, count: number): Buffer {
  const receivedAtMs = Date.now();
  const context = {
    kind: 'custom_event',
    idApp: 1,
    platform: 'web',
    receivedAtMs,
    ids: timeOrderedEventIds(receivedAtMs),
  } as const;
  const lines = Array.from({ length: count }, (_, index) => {
    const id = `backlog-${first + index}`;
    return renderLine(
      context,
      {
        customUserId: `player-${(first + index) % 5000}`,
        customEventName: id,
        customEventParams: { [idParam]: id, text: filler },
      },
      index,
    );
  });
  return Buffer.from(lines.join(''));
}

/** Opens the stream of the service on a data folder, for lines and messages as ingest makes them. */
export async function openBacklog(dataDir: string): Promise<Backlog> {
  const publisher = await openServicePublisher(dataDir, 'backlog');
  let [events, bytes, next] = [0, 0, 0];

  /**
   * Publishes a message; returns false if the stream is full. A publish without a response would make the count wrong,
   * and throws.
   */
  async function publish(payload: Buffer, count: number): Promise<boolean> {
    try {
      await publisher.publish(payload, 60_000);
    } catch (error) {
      if (isAppError(error, 'stream_full')) return false;
      throw error;
    }
    events += count;
    bytes += payload.length;
    return true;
  }

  return {
    get events() {
      return events;
    },
    get bytes() {
      return bytes;
    },
    async add(wanted) {
      const end = next + wanted;
      while (next < end) {
        const round: Promise<boolean>[] = [];
        for (; round.length < publishesInFlight && next < end; next += eventsOfMessage) {
          const count = Math.min(eventsOfMessage, end - next);
          round.push(publish(renderMessage(next, count), count));
        }
        if ((await Promise.all(round)).includes(false)) return false;
      }
      next = end;
      return true;
    },
    close: () => publisher.close(),
  };
}

/** Rows of a backlog, and of a ledger, in the lake. */
export interface BacklogCount {
  readonly rows: number;
  readonly eventIds: number;
  readonly names: number;
  /** Rows of neither. */
  readonly strangers: number;
  readonly ledger: readonly StoredEvent[];
}

/** Counts every row of the lake with plain DuckDB. */
export async function countBacklog(dataDir: string, ledger: Ledger): Promise<BacklogCount> {
  const lake = await openLakeReader(dataDir);
  try {
    const [whole] = await lake.query(`
      SELECT count(*)::DOUBLE AS rows, count(DISTINCT event_id)::DOUBLE AS event_ids, count(DISTINCT custom_event_name)::DOUBLE AS names
      FROM events WHERE custom_event_name LIKE 'backlog-%'`);
    const [others] = await lake.query(
      `SELECT count(*)::DOUBLE AS n FROM events WHERE custom_event_name NOT LIKE 'backlog-%' AND custom_event_name NOT LIKE '${ledger.name}-%'`,
    );
    const rows = await lake.query(`
      SELECT custom_event_name AS id, count(*)::DOUBLE AS rows, count(DISTINCT event_id)::DOUBLE AS ids, bool_and(custom_event_params['${idParam}'] = custom_event_name) AS whole
      FROM events WHERE custom_event_name LIKE '${ledger.name}-%' GROUP BY custom_event_name`);
    return {
      rows: Number(whole?.['rows']),
      eventIds: Number(whole?.['event_ids']),
      names: Number(whole?.['names']),
      strangers: Number(others?.['n']),
      ledger: rows.map((row) => ({
        id: String(row['id']),
        rows: Number(row['rows']),
        eventIds: Number(row['ids']),
        whole: row['whole'] === true,
      })),
    };
  } finally {
    lake.close();
  }
}
