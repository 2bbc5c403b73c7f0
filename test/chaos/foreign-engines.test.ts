import { execFileSync } from 'node:child_process';
import { copyFileSync, rmSync, utimesSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { checkLake } from '../../src/lake/check.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { isLongRun } from '../helpers/chaos.ts';
import { hashFiles } from '../helpers/folder-bytes.ts';
import { testFolder } from '../helpers/folder.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { findPythonEngines } from '../helpers/python-engines.ts';
import { eventLine, startTestCompact } from '../helpers/lake.ts';
import { waitFor } from '../helpers/wait.ts';

/** Reads the table with each engine, then tries every way in which the engine can write; prints the results. */
const script = `
import json, sys
import polars, pyarrow
from deltalake import DeltaTable, Field, write_deltalake
path = sys.argv[1]
rows = pyarrow.table({'event_id': ['x'], 'kind': ['login']})
frame = polars.DataFrame({'event_id': ['x'], 'kind': ['login']})
reads = {
  'delta-rs': lambda: DeltaTable(path).to_pyarrow_dataset().count_rows(),
  'Polars': lambda: polars.scan_delta(path).select(polars.len()).collect().item(),
}
writes = {
  'append': lambda: write_deltalake(path, rows, mode='append', schema_mode='merge'),
  'overwrite': lambda: write_deltalake(path, rows, mode='overwrite', schema_mode='overwrite'),
  'polars': lambda: frame.write_delta(path, mode='append', delta_write_options={'schema_mode': 'merge'}),
  'delete': lambda: DeltaTable(path).delete("custom_user_id = 'u1'"),
  'delete all': lambda: DeltaTable(path).delete(),
  'update': lambda: DeltaTable(path).update(updates={'age': '5'}),
  'optimize': lambda: DeltaTable(path).optimize.compact(),
  'z-order': lambda: DeltaTable(path).optimize.z_order(['event_time']),
  'vacuum': lambda: DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True),
  'properties': lambda: DeltaTable(path).alter.set_table_properties({'delta.enableChangeDataFeed': 'true'}),
  'columns': lambda: DeltaTable(path).alter.add_columns([Field('other', 'string')]),
  'restore': lambda: DeltaTable(path).restore(2),
}
def attempt(write):
  try:
    write()
    return 'written'
  except Exception as error:
    return str(error)
print(json.dumps({'reads': {name: read() for name, read in reads.items()}, 'writes': {name: attempt(write) for name, write in writes.items()}}))
`;

test.skipIf(!isLongRun)(
  'The engines delta-rs and Polars read the table, and refuse to write to it in every way they have',
  async ({ skip }) => {
    const python = (await findPythonEngines()) ?? skip();
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const { table } = lakePaths(lakeDir);
    const stream = createMemoryStream();
    const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    stream.publish([1, 2, 3].map((age) => eventLine({ age })));
    await waitFor('sealed', async () => (await readSnapshot(table)).files.some((file) => !file.young));
    await sealer.stop();
    const compactor = await startTestCompact(folder, stream);
    stream.publish([eventLine(), eventLine({ kind: 'registration' })]);
    await waitFor('flushed', async () => (await readSnapshot(table)).lake?.totals.stored === 5);
    await compactor.stop();
    // A vacuum removes files that no commit names: without one, the refusal would prove nothing.
    const stray = path.join(table, 'stray.parquet');
    copyFileSync(path.join(table, (await readSnapshot(table)).files[0]?.path ?? ''), stray);
    utimesSync(stray, 0, 0);
    const before = hashFiles(lakeDir);
    const { reads, writes } = JSON.parse(execFileSync(python, ['-c', script, table], { encoding: 'utf8' })) as {
      reads: Record<string, number>;
      writes: Record<string, string>;
    };
    expect(reads).toEqual({ 'delta-rs': 5, Polars: 5 });
    expect(Object.entries(writes).filter(([, answer]) => !answer.includes('tributary-writer'))).toEqual([]);
    expect(hashFiles(lakeDir)).toEqual(before);
    rmSync(stray);
    expect((await checkLake(lakeDir)).problems).toEqual([]);
  },
  900_000,
);
