import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { CommandContext } from '../../../src/cli/command.ts';
import { failedCommand } from '../../../src/cli/failed.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { addKeyNotices, readNotices, writeNotices } from '../../../src/lake/catalogue/catalogue-files.ts';
import { readRefusals } from '../../../src/refusals/refusal-files.ts';
import { testFolder } from '../../helpers/folder.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { runCommandHere } from '../../helpers/run-command.ts';
import { waitFor } from '../../helpers/wait.ts';

test('Requests that only the compactor finds to reuse a key are reported to the owner of their app, and the operator can end their notice', async () => {
  const folder = testFolder();
  const refusals = { folder: path.join(folder, 'refusals'), bodies: 'off', ageMs: 60_000 } as const;
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, { refusals });
  const answers: unknown[] = [];
  const run = (...words: string[]): Promise<number> =>
    runCommandHere(failedCommand, [...words, '--data', folder], {
      environment: {},
      printResult: (answer: unknown) => void answers.push(answer),
      print: () => undefined,
      printMessage: () => undefined,
    } as unknown as CommandContext);
  const taken = (events: number): Promise<void> =>
    waitFor(`${events} events are committed`, () => compactor.facts()['streamed'] === events);

  stream.publish(linesOf({ key: 'k', names: ['a', 'b'] }));
  stream.publish(linesOf({ key: 'k', names: ['c'], method: 'customEvent' }));
  stream.publish([...linesOf({ key: 'l', names: ['a'] }), eventLine({ age: 'x' })]);
  stream.publish([...linesOf({ key: 'l', names: ['b', 'a'] }), ...linesOf({ key: 'k', names: ['b', 'd', 'e'] })]);
  await taken(10);
  const told = async (): Promise<number> =>
    (await readRefusals(refusals, 1, { nowMs: Date.now(), most: 10 })).reduce((sum, { requests }) => sum + requests, 0);
  await waitFor('three requests are among the refusals', async () => (await told()) === 3);
  expect(await readRefusals(refusals, 1, { nowMs: Date.now(), most: 1 })).toMatchObject([
    { status: 200, hasIdempotencyKey: true, detail: expect.stringContaining('stands for another request') },
  ]);
  await waitFor('the owner has a notice', async () => (await readNotices(path.join(folder, 'lake'))).length > 0);
  expect(await readNotices(path.join(folder, 'lake'))).toMatchObject([{ kind: 'key_reused', idApp: 1 }]);

  const [notice] = compactor.facts()['warnings'] as readonly { code: string; message: string; action: string }[];
  expect([notice?.code, notice?.message.endsWith(': 7')]).toEqual(['events_failed', true]);
  expect(notice?.action).toContain('failed drop --reason key_reused');
  const file = path.join(folder, 'reused.ndjson');
  await run('export', file, '--reason', 'key_reused');
  expect(readFileSync(file, 'utf8').match(/"reason":"key_reused"/g)).toHaveLength(6);
  await expect(run('export', file)).rejects.toMatchObject({ code: 'usage' });
  await run('drop', '--reason', 'key_reused', '--app', '2');
  await run('drop', '--reason', 'key_reused');
  await run('drop', '--reason', 'bad_value');
  expect(answers).toEqual([{ file, events: 6 }, { dropped: 0 }, { dropped: 6 }, { dropped: 1 }]);
  stream.publish(linesOf({ key: 'm', names: ['a'] }));
  await taken(11);
  expect(compactor.facts()).toMatchObject({ failed: 0, erased: 7, stored: 4, warnings: [] });
  await compactor.stop();
  expect((await checkLake(path.join(folder, 'lake'))).problems).toEqual([]);
});

test('A notice of reused keys is kept with those of the catalogue, once per app and day', async () => {
  const folder = testFolder();
  const notice = { id: 'nt_1', idApp: 1, date: '2026-01-02', foundAt: '2026-01-02T10:00:00.000Z', what: '' } as const;
  await addKeyNotices(folder, [{ ...notice, kind: 'key_reused' }]);
  await writeNotices(folder, [{ ...notice, id: 'nt_2', kind: 'volume_fallen', foundAt: '2026-01-02T11:00:00.000Z' }]);
  await addKeyNotices(folder, [{ ...notice, kind: 'key_reused', foundAt: '2026-01-02T12:00:00.000Z' }]);
  expect((await readNotices(folder)).map(({ id }) => id)).toEqual(['nt_2', 'nt_1']);
  await writeNotices(folder, []);
  expect((await readNotices(folder)).map(({ id }) => id)).toEqual(['nt_1']);
});
