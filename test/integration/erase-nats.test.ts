import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eraseEvents } from '../../src/admin/erase/erase.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { openTable } from '../../src/lake/log/table.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import { findFilesWith } from '../helpers/find-bytes.ts';
import { testFolder } from '../helpers/folder.ts';
import { eventLine, readRows, startTestCompact } from '../helpers/lake.ts';
import { startTestNats } from '../helpers/nats.ts';
import { waitFor } from '../helpers/wait.ts';

const mebibyte = 1024 * 1024;

test.for([1, 128])(
  'The bytes of an erased person leave the files of nats-server, with a stream of %i MiB and events behind theirs',
  async (streamMiB) => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const nats = await startTestNats({ streamMaxBytes: streamMiB * mebibyte });
    onTestFinished(() => nats.stop());
    const publisher = openPublisher(await nats.connect());
    const compactor = await startTestCompact(folder, await openReader(await nats.connect()));
    const publish = (user: string) =>
      publisher.publish(Buffer.from(`${JSON.stringify(eventLine({ custom_user_id: user }))}\n`), 5000);
    for (const user of ['planted', 'somebody', 'planted', 'else']) await publish(user);
    await waitFor('all are stored', async () => (await readRows(folder, 'event_id').catch(() => [])).length === 4);
    // What the lake has is purged from the stream, and still there in the broker's file.
    expect(await findFilesWith(nats.folder, 'planted')).not.toEqual([]);

    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    const clock = createClock(0);
    const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
    const dependencies = {
      table,
      lakeDir,
      duckdb,
      publisher,
      storeDir: path.join(nats.folder, 'store'),
      clock,
      crashPoint: noCrashPoint,
      signal: new AbortController().signal,
    };
    expect(await eraseEvents(dependencies, { users: ['planted'] }, { retentionMs: 60_000, now: true })).toMatchObject({
      rows: 2,
    });
    duckdb.close();
    expect(await findFilesWith(nats.folder, 'planted')).toEqual([]);
    expect(await findFilesWith(folder, 'planted')).toEqual([]);
    await publish('another person');
    await waitFor('the import continues', async () => (await readRows(folder, 'event_id')).length === 3);
    await compactor.stop();
    await nats.kill();
    await nats.restart();
    expect(await findFilesWith(nats.folder, 'planted')).toEqual([]);
  },
);
