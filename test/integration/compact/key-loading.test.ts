import { EventEmitter, once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { loadKeysStep } from '../../../src/compact/startup-work.ts';
import { testFolder } from '../../helpers/folder.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine, readRows, readTotals, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const receivedMs = Date.now();
const request = (key: string) => linesOf({ key, names: ['a', 'b'], receivedMs });

/** Creates a lake with the events of a keyed request, whose compactor has stopped. */
async function makeLake() {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  stream.publish(request('known'));
  await waitFor('the request is stored', async () => (await readRows(folder)).length === 2);
  await compactor.stop();
  return { folder, stream };
}

test('Batches without keys are flushed before the keys of the day are loaded, and requests are compared with them all', async () => {
  const { folder, stream } = await makeLake();
  const held = new EventEmitter();
  const load = (): boolean => held.emit('load');
  const crashPoint = async (step: string): Promise<void> => {
    if (step === loadKeysStep) await once(held, 'load');
  };
  const compactor = await startTestCompact(folder, stream, { crashPoint });
  onTestFinished(() => compactor.stop());
  onTestFinished(() => void load());
  stream.publish([eventLine()]);
  await waitFor('the event is stored', async () => (await readRows(folder)).length === 3);
  load();
  stream.publish([...request('known'), eventLine(), ...request('new')]);
  await waitFor('all are committed', async () => (await readTotals(path.join(folder, 'lake')))?.streamed === 8);
  expect(await readTotals(path.join(folder, 'lake'))).toMatchObject({ stored: 6, repeats: 2, failed: 0 });
});

test('A compactor that cannot load the keys of the day ends, even if no batch needs them', async () => {
  const { folder, stream } = await makeLake();
  const slices = path.join(folder, 'spool', 'keys');
  const crashPoint = (step: string): Promise<void> => {
    if (step === loadKeysStep) writeFileSync(slices, 'in the way of the folder');
    return Promise.resolve();
  };
  const compactor = await startTestCompact(folder, stream, { crashPoint, keySliceRows: 1 });
  onTestFinished(() => compactor.stop());
  await expect(compactor.failed).rejects.toThrow(slices);
});
