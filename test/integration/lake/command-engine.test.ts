import { randomUUID } from 'node:crypto';
import { cpSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openCommandEngine } from '../../../src/lake/command-engine.ts';
import { ensureLake } from '../../../src/lake/lake.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

test('Rows that a command spills are removed at its end, or by the compactor if the command is killed', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const staging = path.join(lakeDir, 'staging');
  await ensureLake(lakeDir, { clock: createClock(0), retentionMs: 86_400_000 });
  const engine = await openCommandEngine(lakeDir, { memoryMb: 64, threads: 1 });
  await engine.duckdb.run(
    'CREATE TEMP TABLE many AS SELECT md5(range::VARCHAR) AS one, md5((range + 1)::VARCHAR) AS two FROM range(2000000)',
  );
  const [spill = ''] = readdirSync(staging);
  expect(readdirSync(path.join(staging, spill))).not.toEqual([]);
  const left = `spill-${randomUUID()}`;
  cpSync(path.join(staging, spill), path.join(staging, left), { recursive: true });
  await engine.close();
  expect(readdirSync(staging)).toEqual([left]);

  const compactor = await startTestCompact(folder, createMemoryStream());
  onTestFinished(() => compactor.stop());
  await waitFor('the staging folder is swept', () => readdirSync(staging).length === 0);
});

test('A compactor that has stopped leaves none of its temporary rows', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  expect(readdirSync(folder)).toContain('spool');
  await compactor.stop();
  expect(readdirSync(folder)).not.toContain('spool');
});
