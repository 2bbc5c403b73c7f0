import path from 'node:path';
import { expect, test } from 'vitest';
import { firstSeenSteps } from '../../src/lake/first-seen/first-seen-parts.ts';
import { inLongForm } from '../helpers/chaos.ts';
import { prepareCompactProcesses, publishEvents } from '../helpers/compact-process.ts';
import { isSettled, listParts, namesOf, readFound } from '../helpers/first-seen.ts';
import { waitFor } from '../helpers/wait.ts';

const processes = prepareCompactProcesses();
/** Merged days would leave one part, and nothing to merge. */
const options = { mergeAfterMs: Number.MAX_SAFE_INTEGER };

test('A compactor killed at any step of the first-seen parts is followed by one that completes them and leaves no other file', async ({
  skip,
}) => {
  inLongForm(skip);
  const place = await processes.makePlace('first-seen');
  const lakeDir = path.join(place.folder, 'lake');
  const ids = new Set<string>();
  for (const step of firstSeenSteps) {
    // Each message is sealed alone, so that there are parts to merge.
    await publishEvents(place.publisher, ids, { custom_user_id: step });
    expect(`${step} ${await processes.start(place, { crashAt: step, options }).exited}`).toBe(`${step} SIGKILL`);
  }
  const last = processes.start(place, { options });
  await publishEvents(place.publisher, ids, { custom_user_id: 'last' });
  await waitFor('whole', () => isSettled(lakeDir, ids.size));
  last.child.kill('SIGTERM');
  expect(await last.exited).toBe('0');
  expect(await listParts(lakeDir)).toEqual(namesOf(await readFound(lakeDir)));
}, 180_000);
