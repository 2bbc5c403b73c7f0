import path from 'node:path';
import { expect, test } from 'vitest';
import { cataloguePaths } from '../../src/lake/catalogue/catalogue-files.ts';
import { readCatalogue } from '../../src/lake/catalogue/read-catalogue.ts';
import { catalogueSteps } from '../../src/lake/catalogue/refresh.ts';
import { findNames } from '../../src/runtime/files/folder-names.ts';
import { inLongForm } from '../helpers/chaos.ts';
import { prepareCompactProcesses, publishEvents } from '../helpers/compact-process.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { waitFor } from '../helpers/wait.ts';

const processes = prepareCompactProcesses();

test('A compactor killed at any step of the catalogue is followed by one that completes it and leaves no temporary file', async ({
  skip,
}) => {
  inLongForm(skip);
  const place = await processes.makePlace('catalogue');
  const lakeDir = path.join(place.folder, 'lake');
  const { folder, packs } = cataloguePaths(lakeDir);
  const ids = new Set<string>();
  const publish = (name: string): Promise<void> =>
    publishEvents(place.publisher, ids, {
      kind: 'custom_event',
      custom_event_name: 'visit',
      custom_event_params: { [name]: '1' },
    });
  const steps = inTurn(catalogueSteps, 4);
  for (const step of steps) {
    await publish(step);
    expect(`${step} ${await processes.start(place, { crashAt: step }).exited}`).toBe(`${step} SIGKILL`);
  }
  const last = processes.start(place);
  await publish('last');
  await waitFor('whole', async () => {
    const { customEvents, missingFiles } = await readCatalogue(lakeDir, 1, 'visit');
    return missingFiles === 0 && customEvents[0]?.events === ids.size;
  });
  last.child.kill('SIGTERM');
  expect(await last.exited).toBe('0');
  const [visit] = (await readCatalogue(lakeDir, 1, 'visit')).customEvents;
  expect(new Map(visit?.parameters.map(({ name, seen }) => [name, seen]))).toEqual(
    new Map([...steps, 'last'].map((name) => [name, 5])),
  );
  const names = [...(await findNames(folder)), ...(await findNames(packs))];
  expect(names.filter((name) => name.endsWith('.tmp'))).toEqual([]);
  expect(names.filter((name) => name.startsWith('catalogue-'))).toHaveLength(1);
}, 180_000);
