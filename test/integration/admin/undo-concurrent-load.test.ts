import { beforeEach, expect, test } from 'vitest';
import type { LoadOutcome } from '../../../src/admin/load/load.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { at, openLoadArea, type LoadArea } from '../../helpers/loads.ts';

beforeEach(oneTestIn(2));

let area: LoadArea;

beforeEach(async () => {
  area = await openLoadArea(testFolder(), 'payments');
});

const header = 'tsEvent,idApp,eventId,total,currency,isTest,params.name,params.value';
const lines = ['1700000000,1,a,1.5,EUR,0,,', '1700000001,2,b,12,USD,,,', '1700000002,1,,0.0001,RUB,1,,'];
const csv = `${[header, ...lines].join('\n')}\n`;

const loadIdOf = (outcome: LoadOutcome): string => ('load' in outcome ? outcome.load : '');

/** Makes a load of the three lines that is under review, since another load of them was undone. */
async function loadUnderReview(more: string): Promise<{ readonly id: string; readonly file: string }> {
  const first = loadIdOf(await area.load(area.write('p.csv', csv)));
  const file = area.write('review.csv', `${csv}${more}`);
  const id = loadIdOf(await area.load(file));
  await area.undo(first);
  return { id, file };
}

test('A load that has left out rows of a load that is undone before its commit fails, and adds them when it is repeated', async () => {
  const first = loadIdOf(await area.load(area.write('p.csv', csv)));
  const wide = area.write('wide.csv', `${csv}1700000009,1,new,3,EUR,0,,\n`);
  const undo = at('load-staged', () => area.undo(first));
  await expect(area.load(wide, {}, undo)).rejects.toMatchObject({
    code: 'commit_conflict',
    hint: 'Run the command again.',
  });
  expect(await area.rows('event_id')).toEqual([]);
  expect(await area.load(wide)).toMatchObject({ stored: 4, repeats: 0 });
});

test('A load without left-out rows continues when another load is undone', async () => {
  const first = loadIdOf(await area.load(area.write('p.csv', csv)));
  const other = area.write('other.csv', `${header}\n1700000009,1,new,3,EUR,0,,\n`);
  const undo = at('load-staged', () => area.undo(first));
  expect(await area.load(other, {}, undo)).toMatchObject({ stored: 1, repeats: 0 });
  expect(await area.rows('event_id')).toEqual([{ event_id: 'new' }]);
});

test('The undo of a load that is repeated meanwhile changes nothing', async () => {
  const { id, file } = await loadUnderReview('1700000009,1,new,3,EUR,0,,\n');
  const again = at('files-linked', () => area.load(file));
  await expect(area.undo(id, again)).rejects.toMatchObject({
    code: 'commit_conflict',
    message: expect.stringMatching('made again') as unknown,
  });
  expect(await area.load(file)).toMatchObject({ loadedBefore: true });
  expect(await area.undo(id)).toMatchObject({ rows: 4 });
  expect(await area.rows('event_id')).toEqual([]);
});

test('A load that is undone while it is repeated fails at once', async () => {
  const { id, file } = await loadUnderReview('\n');
  const undo = at('load-staged', () => area.undo(id));
  await expect(area.load(file, {}, undo)).rejects.toMatchObject({ hint: 'Run the command again.' });
  expect(await area.load(file)).toMatchObject({ stored: 3, repeats: 0 });
});
