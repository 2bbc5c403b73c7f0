import { describe, expect, it, test } from 'vitest';
import {
  createCutoffs,
  createExpiredTest,
  dayOf,
  hasAgeLimits,
  listRemovedDays,
  type AgeRules,
} from '../../../../src/lake/expiry/age-rules.ts';
import { findExpired } from '../../../../src/lake/expiry/expire-files.ts';
import type { FailedEvent } from '../../../../src/lake/files/failed-events.ts';
import type { DataFile } from '../../../../src/lake/log/snapshot.ts';

const kinds = ['custom_event', 'login'];
const today = '2026-06-30';
const rules: AgeRules = {
  defaultDays: 30,
  apps: [{ idApp: 5, days: 10 }, { idApp: 6, days: 0 }, { idApp: 7, kinds: { login: 3 } }, { idApp: 9 }],
};
const cutoffs = createCutoffs(rules, today, kinds);

const file = (from: string, to: string, apps: readonly [number, number], kind = 'login'): DataFile => ({
  path: `_sealed/kind=${kind}/date=${from.slice(0, 10)}/a.parquet`,
  publishedPath: `kind=${kind}/date=${from.slice(0, 10)}/a.parquet`,
  absolutePath: '',
  sizeBytes: 1,
  sha256: 'a',
  numRecords: 4,
  young: false,
  minValues: { event_time: from, id_app: apps[0], kind },
  maxValues: { event_time: to, id_app: apps[1], kind },
});

const dateFor = (idApp: number | undefined, kind: string): string => {
  const ms = cutoffs.findMs(idApp, kind);
  return ms === -Infinity ? 'never' : dayOf(ms);
};

test('An app has its own limit, else that of the service, and a kind of it its own', () => {
  expect(kinds.map((kind) => dateFor(undefined, kind))).toEqual(['2026-05-31', '2026-05-31']);
  expect([5, 6, 8, 9].map((idApp) => dateFor(idApp, 'login'))).toEqual([
    '2026-06-20',
    'never',
    '2026-05-31',
    '2026-05-31',
  ]);
  expect(kinds.map((kind) => dateFor(7, kind))).toEqual(['2026-05-31', '2026-06-27']);
});

test('Rules without a number of days limit no rows', () => {
  const none = { defaultDays: undefined, apps: [{ idApp: 1 }, { idApp: 2, days: 0, kinds: { login: 0 } }] };
  expect(hasAgeLimits(none)).toBe(false);
  expect(hasAgeLimits({ ...none, apps: [{ idApp: 2, kinds: { login: 1 } }] })).toBe(true);
  expect(hasAgeLimits({ ...none, defaultDays: 1 })).toBe(true);
});

test('Readers of copies learn the first kept date of each app, by kind only where the kinds differ', () => {
  expect(listRemovedDays(cutoffs, [5, 8])).toEqual([
    { idApp: 5, before: '2026-06-20' },
    { idApp: 7, kind: 'custom_event', before: '2026-05-31' },
    { idApp: 7, kind: 'login', before: '2026-06-27' },
  ]);
});

describe('The statistics of a file decide whether it is removed, read or kept', () => {
  it.each([
    ['before every limit of its apps', file('2026-05-01T00:00:00.000Z', '2026-05-01T23:59:59.999Z', [1, 4]), 'all'],
    ['at the first kept moment', file('2026-05-31T00:00:00.000Z', '2026-05-31T10:00:00.000Z', [1, 4]), 'none'],
    ['up to that moment', file('2026-05-30T00:00:00.000Z', '2026-05-31T00:00:00.000Z', [1, 4]), 'some'],
    ['with an app that has no limit', file('2020-01-01T00:00:00.000Z', '2020-01-01T01:00:00.000Z', [1, 8]), 'some'],
    ['of that app alone', file('2020-01-01T00:00:00.000Z', '2020-01-01T01:00:00.000Z', [6, 6]), 'none'],
    ['of an app with a shorter limit', file('2026-06-10T00:00:00.000Z', '2026-06-10T01:00:00.000Z', [5, 5]), 'all'],
    ['of a kind with a shorter limit', file('2026-06-20T00:00:00.000Z', '2026-06-20T01:00:00.000Z', [7, 7]), 'all'],
    ['of another kind', file('2026-06-20T00:00:00.000Z', '2026-06-20T01:00:00.000Z', [7, 7], 'custom_event'), 'none'],
  ])('A file %s', (_title, one, verdict) => {
    expect(findExpired(one, cutoffs)).toBe(verdict);
  });

  it('A file of another engine without statistics', () => {
    const unknown = { ...file('', '', [1, 1]), minValues: {}, maxValues: {}, numRecords: undefined };
    expect(findExpired(unknown, cutoffs)).toBe('some');
  });

  it('A file without rows, as an erasure leaves it', () => {
    const empty = { ...file('2026-05-01T00:00:00.000Z', '', [1, 1]), numRecords: 0, minValues: {}, maxValues: {} };
    expect(findExpired(empty, cutoffs)).toBe('all');
    expect(findExpired({ ...empty, publishedPath: 'kind=login/date=2026-06-29/a.parquet' }, cutoffs)).toBe('none');
  });
});

const lineAt = (eventTime: unknown, idApp = 1): FailedEvent => ({
  reason: 'bad_value',
  failedAt: '2026-06-30T00:00:00.000Z',
  line: JSON.stringify({ event_id: 'a', kind: 'login', id_app: idApp, event_time: eventTime, received_at: 1 }),
});

const seconds = (day: string): number => Date.parse(day) / 1000;

test('A failed event expires by the time in its line; one without a readable time stays', () => {
  const isExpired = createExpiredTest(cutoffs);
  expect(isExpired(lineAt(seconds('2026-05-30')))).toBe(true);
  expect(isExpired(lineAt(seconds('2026-05-31')))).toBe(false);
  expect(isExpired(lineAt(seconds('2020-05-30'), 6))).toBe(false);
  expect(isExpired(lineAt('yesterday'))).toBe(false);
  expect(isExpired({ ...lineAt(1), line: 'not JSON' })).toBe(false);
});

const revenue = (idApp: number): FailedEvent => ({
  ...lineAt(1),
  line: JSON.stringify({
    event_id: 'a',
    kind: 'revenue',
    id_app: idApp,
    event_time: seconds('2020-05-30'),
    received_at: 1,
  }),
});

test('A failed event of another import dataset expires by the rule of its table', () => {
  const apps = [{ idApp: 1, days: 10, kinds: { payments: 0 } }];
  const isExpired = createExpiredTest(createCutoffs({ defaultDays: 30, apps }, today, kinds));
  expect(isExpired(revenue(1))).toBe(false);
  expect(isExpired(revenue(2))).toBe(true);
});
