import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findExport } from '../../../../src/datasets/dataset.ts';
import type { DerivedExport } from '../../../../src/datasets/pipeline-file.ts';
import { readSpan } from '../../../../src/export/worker/derived-query.ts';
import { exportHere } from '../../../helpers/export-here.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../../helpers/lake-fixture.ts';

const day = 86_400;
const start = Date.parse('2025-02-03T00:00:00Z') / 1000;

let events = 0;
/** A login of a user, seconds after the start. */
function login(user: string, after: number, id = `event-${String((events += 1)).padStart(4, '0')}`): FixtureEvent {
  const at = start + after;
  return { event_id: id, kind: 'login', id_app: 1, event_time: at, available_at: at, custom_user_id: user };
}

async function lakeOf(...files: (readonly FixtureEvent[])[]): Promise<string> {
  const tableDir = path.join(testFolder(), 'events');
  await writeLake(tableDir, files);
  return tableDir;
}

/** The span of a number of days from the start. */
const span = (days: number) => ({ fromSeconds: start, beforeSeconds: start + days * day });

describe('the first event of each user', () => {
  const request = { event: 'newUsers', selectors: ['customUserId', 'eventId'], eventTime: span(1) };

  it('A user with an event before the span is not new in it, and the same id in another app is another user', async () => {
    const tableDir = await lakeOf(
      [login('old', -40 * day), login('new', 10, 'first')],
      [login('old', 20), login('new', 30), { ...login('old', 40, 'of app 2'), id_app: 2 }],
    );
    expect(await exportHere(tableDir, request, { idApps: [1, 2] })).toEqual([
      ['new', 'first'],
      ['old', 'of app 2'],
    ]);
    expect(await exportHere(tableDir, request)).toEqual([['new', 'first']]);
  });

  it('Of the events of one second, the one with the least id is the first', async () => {
    const tableDir = await lakeOf([login('new', 10, 'b'), login('new', 10, 'a'), login('new', 11, '0')]);
    expect(await exportHere(tableDir, request)).toEqual([['new', 'a']]);
  });
});

describe('the days of each user', () => {
  it('Each day has its first event and the number of its events', async () => {
    const tableDir = await lakeOf([
      login('u', 5, 'day 1'),
      login('u', day - 1),
      login('u', day, 'day 2'),
      login('u', -1, 'day before'),
    ]);
    const request = { event: 'userActivities', selectors: ['eventId', 'countEvent'], eventTime: span(2) };
    expect(await exportHere(tableDir, request)).toEqual([
      ['day 1', '2'],
      ['day 2', '1'],
    ]);
  });
});

describe('the sessions of each user', () => {
  const request = { event: 'userSessions', selectors: ['eventId', 'countEvent', 'duration'], eventTime: span(1) };

  it('A pause of half an hour continues a session, and a longer one ends it', async () => {
    const tableDir = await lakeOf([
      login('u', 100, 'first'),
      login('u', 100 + 1800),
      login('u', 100 + 1800 + 1801, 'second'),
      login('other', 101, 'of another'),
    ]);
    expect(await exportHere(tableDir, request)).toEqual([
      ['first', '2', '1800'],
      ['of another', '1', '0'],
      ['second', '1', '0'],
    ]);
  });

  it('A session belongs completely to the span in which it begins', async () => {
    const tableDir = await lakeOf([
      login('begun before', -1),
      login('begun before', 600),
      login('ends later', day - 1, 'last second'),
      login('ends later', day + 600),
    ]);
    expect(await exportHere(tableDir, request)).toEqual([['last second', '2', '601']]);
  });

  it('A session is followed to its end at any distance after the span', async () => {
    const pauses = 5 * 48;
    const restless = Array.from({ length: pauses + 1 }, (_, n) => login('u', n * 1800));
    const tableDir = await lakeOf(restless.slice(0, 100), restless.slice(100));
    expect(await exportHere(tableDir, request)).toEqual([
      [restless[0]?.event_id, String(pauses + 1), String(pauses * 1800)],
    ]);
  });
});

function derivedOf(name: string): DerivedExport {
  const event = findExport(name)?.event;
  if (event === undefined || !('derive' in event)) throw new Error(`${name} is not derived`);
  return event;
}

describe('the events that determine derived rows', () => {
  it('All earlier events determine new users; those of one earlier day or session pause determine days and sessions', () => {
    const asked = { fromSeconds: 10 * day, beforeSeconds: 11 * day };
    expect(readSpan(derivedOf('newUsers'), asked, 0)).toEqual({ beforeSeconds: 11 * day });
    expect(readSpan(derivedOf('userActivities'), asked, 2 * day)).toEqual({
      fromSeconds: 8 * day,
      beforeSeconds: 13 * day,
    });
    expect(readSpan(derivedOf('userSessions'), asked, Infinity)).toEqual({ fromSeconds: 10 * day - 1800 });
    expect(readSpan(derivedOf('userSessions'), {}, 0)).toEqual({});
  });
});
