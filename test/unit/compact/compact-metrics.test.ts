import { describe, expect, it } from 'vitest';
import { registerBacklogGauges, registerTableGauges } from '../../../src/compact/compact-metrics.ts';
import type { Epoch } from '../../../src/lake/log/lake-state.ts';
import { createTableSize } from '../../../src/lake/log/table-state.ts';
import { createMetrics, renderMetrics, type Metrics } from '../../../src/runtime/metrics.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';

/** Returns the values of a scrape, by names with labels. */
async function read(metrics: Metrics): Promise<Readonly<Record<string, number>>> {
  const { body } = await renderMetrics([await metrics.snapshot()]);
  const lines = [...body.matchAll(/^tributary_(\S+) (\S+)$/gm)];
  return Object.fromEntries(lines.map(([, name = '', value]) => [name, Number(value)]));
}

/** Creates a stream with a test clock, its gauges, and a lake at a position. */
function createBacklog() {
  const clock = { now: 1_700_000_000_000, nowMs: () => clock.now };
  const stream = createMemoryStream(clock);
  const metrics = createMetrics();
  const lake: { epoch: Epoch | undefined } = { epoch: undefined };
  const reader = { ...stream, isAway: false };
  registerBacklogGauges(metrics, {
    reader: {
      findMessage: (sequence) => stream.findMessage(sequence),
      state: () => (reader.isAway ? Promise.reject(new Error('away')) : stream.state()),
    },
    clock,
    findEpoch: () => lake.epoch,
  });
  const reach = async (position: number): Promise<void> => {
    lake.epoch = { appId: 'a', streamId: (await stream.state()).id, position, anchorHash: '' } as Epoch;
  };
  return { clock, stream, metrics, reader, reach };
}

describe('registerBacklogGauges', () => {
  it('The gauges show how many messages the lake lacks, and for how long the oldest of them has waited', async () => {
    const { clock, stream, metrics, reach } = createBacklog();
    expect(await read(metrics)).toMatchObject({ compact_lag_messages: 0, compact_oldest_waiting_seconds: 0 });
    stream.publish([{ n: 1 }]);
    clock.now += 60_000;
    stream.publish([{ n: 2 }]);
    clock.now += 5000;
    expect(await read(metrics)).toMatchObject({ compact_lag_messages: 2, compact_oldest_waiting_seconds: 65 });
    await reach(1);
    expect(await read(metrics)).toMatchObject({ compact_lag_messages: 1, compact_oldest_waiting_seconds: 5 });
    await reach(2);
    expect(await read(metrics)).toMatchObject({ compact_lag_messages: 0, compact_oldest_waiting_seconds: 0 });
  });

  it('The lake has nothing of a recreated stream, regardless of its position in the previous one', async () => {
    const { clock, stream, metrics, reach } = createBacklog();
    for (const n of [1, 2, 3]) stream.publish([{ n }]);
    await reach(3);
    stream.recreate();
    stream.publish([{ n: 4 }]);
    clock.now += 7000;
    expect(await read(metrics)).toMatchObject({ compact_lag_messages: 1, compact_oldest_waiting_seconds: 7 });
  });

  it('Messages that another client has purged do not count as backlog, and get no age', async () => {
    const { stream, metrics, reach } = createBacklog();
    for (const n of [1, 2, 3]) stream.publish([{ n }]);
    await reach(1);
    stream.lose(2);
    const shown = await read(metrics);
    expect(shown).toMatchObject({ compact_lag_messages: 2 });
    expect(shown).not.toHaveProperty('compact_oldest_waiting_seconds');
  });

  it('The gauges of a broker that does not respond are left out until it responds again', async () => {
    const { stream, metrics, reader } = createBacklog();
    stream.publish([{ n: 1 }]);
    expect(await read(metrics)).toHaveProperty('stream_bytes');
    reader.isAway = true;
    expect(await read(metrics)).toEqual({});
    reader.isAway = false;
    expect(await read(metrics)).toMatchObject({ compact_lag_messages: 1 });
  });
});

describe('registerTableGauges', () => {
  it('Each table has its rows, bytes and files, and a new one is shown from then on', async () => {
    const metrics = createMetrics();
    const sizes = new Map([['events', { rows: 5, bytes: 700, youngFiles: 2, sealedFiles: 1 }]]);
    registerTableGauges(metrics, () => sizes);
    expect(await read(metrics)).toEqual({
      'lake_rows{table="events"}': 5,
      'lake_bytes{table="events"}': 700,
      'lake_files{table="events",state="young"}': 2,
      'lake_files{table="events",state="sealed"}': 1,
    });
    sizes.set('hits', createTableSize());
    expect(await read(metrics)).toHaveProperty(['lake_rows{table="hits"}'], 0);
  });
});
