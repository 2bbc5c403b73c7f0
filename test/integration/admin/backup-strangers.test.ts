import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { cataloguePaths } from '../../../src/lake/catalogue/catalogue-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { makeBackup } from '../../../src/admin/backup/backup.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { sourceOf } from '../../helpers/backup.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

it('A backup warns of foreign entries, and of no entry of the service', async () => {
  const root = testFolder();
  const data = path.join(root, 'data');
  const lakeDir = path.join(data, 'lake');
  const stream = createMemoryStream();
  stream.publish([eventLine()]);
  const compactor = await startTestCompact(data, stream);
  await waitFor('a row', async () => (await readSnapshot(lakePaths(lakeDir).table)).files.length > 0);
  await compactor.stop();
  writeFileSync(cataloguePaths(lakeDir).viewsSql, '');
  const warnings: unknown[] = [];
  const logger = pino({ level: 'warn' }, { write: (line: string) => void warnings.push(JSON.parse(line)) });
  const { signal } = new AbortController();
  const backUp = (name: string): Promise<unknown> =>
    makeBackup(sourceOf(data, stream), path.join(root, name), { clock: createClock(0), link: false, signal, logger });
  await backUp('first');
  expect(warnings).toEqual([]);
  writeFileSync(path.join(lakeDir, 'notes.txt'), '');
  await backUp('second');
  expect(warnings).toMatchObject([{ folder: lakeDir, names: ['notes.txt'] }]);
});
