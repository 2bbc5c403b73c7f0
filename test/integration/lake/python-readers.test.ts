import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { findPythonEngines } from '../../helpers/python-engines.ts';
import { waitFor } from '../../helpers/wait.ts';

const linesOf = (part: string): string[] =>
  part
    .split('\n')
    .slice(1)
    .filter((line) => line !== '');

/** Python lines of docs/lake.md: those that read the log, then those that read the sealed folders. */
function findPageLines(): { log: string[]; sealed: string[] } {
  const [, block = ''] =
    /```python\n([\s\S]*?)```/.exec(readFileSync(path.join(packageRoot, 'docs/lake.md'), 'utf8')) ?? [];
  const [, log = '', sealed = ''] = block.split(/^# /m);
  return { log: linesOf(log), sealed: linesOf(sealed) };
}

/**
 * Runs each line below the data folder's parent. Returns the numbers of rows and of distinct events.
 */
const script = `
import json, sys
import pandas, polars, pyarrow.dataset
from deltalake import DeltaTable
def count(line):
  table = eval(line)
  ids = list(table['event_id'].to_pylist() if hasattr(table['event_id'], 'to_pylist') else table['event_id'])
  return [len(ids), len(set(ids))]
print(json.dumps([count(line) for line in json.loads(sys.argv[1])]))
`;

/** Counts the rows of a value in every way that pushes the filter down. */
const filterScript = `
import json, sys
import polars, pyarrow.dataset
from deltalake import DeltaTable
table = DeltaTable('data/lake/events')
def count(column, value):
  return [
    len(table.to_pandas(filters=[(column, '==', value)])),
    table.to_pyarrow_table(filters=[(column, '==', value)]).num_rows,
    table.to_pyarrow_dataset().to_table(filter=pyarrow.dataset.field(column) == value).num_rows,
    polars.scan_delta('data/lake/events').filter(polars.col(column) == value).collect().height,
    polars.scan_delta('data/lake/events', use_pyarrow=True).filter(polars.col(column) == value).collect().height,
  ]
print(json.dumps([count(column, value) for column, value, _ in json.loads(sys.argv[1])]))
`;

/** Columns with a value and its rows: with statistics in the log, without, and omitted in young files. */
const filters = [
  ['kind', 'login', 4],
  ['id_app', 1, 5],
  ['custom_user_id', 'u1', 5],
  ['age', 2, 1],
  ['custom_event_name', 'n', 1],
  ['gaid', 'nobody', 0],
] as const;

test('Every Python line of docs/lake.md reads every row once, young or sealed, and a filter by any column finds its rows', async ({
  skip,
}) => {
  inWholeRun(skip);
  const python = (await findPythonEngines()) ?? skip('Python or its packages are missing');
  const folder = testFolder();
  const data = path.join(folder, 'data');
  const { table } = lakePaths(path.join(data, 'lake'));
  const stream = createMemoryStream();
  // A seal and the next flush, while the sealed young files wait for the retention.
  const sealer = await startTestCompact(data, stream, { sealAgeMs: 10 });
  stream.publish([1, 2, 3].map((age) => eventLine({ age })));
  await waitFor('sealed', async () => (await readSnapshot(table)).files.some((file) => !file.young));
  await sealer.stop();
  const compactor = await startTestCompact(data, stream);
  stream.publish([
    eventLine(),
    eventLine({ kind: 'custom_event', custom_event_name: 'n', custom_event_params: { a: 'b' } }),
  ]);
  await waitFor('flushed', async () => (await readSnapshot(table)).lake?.totals.stored === 5);
  await compactor.stop();

  const run = (text: string, argument: unknown): unknown =>
    JSON.parse(
      execFileSync(python, ['-c', text, JSON.stringify(argument)], {
        cwd: folder,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'inherit'],
      }),
    );
  const { log, sealed } = findPageLines();
  expect([log.length, sealed.length]).toEqual([2, 3]);
  expect(run(filterScript, filters)).toEqual(filters.map(([, , rows]) => Array.from({ length: 5 }, () => rows)));
  expect(run(script, [...log, ...sealed])).toEqual([...log.map(() => [5, 5]), ...sealed.map(() => [3, 3])]);
  expect((await checkLake(path.join(data, 'lake'))).problems).toEqual([]);
}, 600_000);
