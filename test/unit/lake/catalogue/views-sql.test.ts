import { expect, it } from 'vitest';
import type { CatalogueEvent, CatalogueParameter } from '../../../../src/lake/catalogue/read-catalogue.ts';
import { viewsSql } from '../../../../src/lake/catalogue/views-sql.ts';

const seen = { firstSeen: '2026-01-01T00:00:00.000Z', lastSeen: '2026-01-01T00:00:00.000Z' };
const types = { integer: 0, long: 0, decimal: 0, boolean: 0, date: 0, time: 0, text: 1, empty: 0 };
const parameterOf = (name: string): CatalogueParameter => ({
  name,
  type: 'text',
  seen: 1,
  types,
  untyped: 0,
  distinctValues: 1,
  examples: [],
  ...seen,
});
const eventOf = (customEventName: string, names: readonly string[]): CatalogueEvent => ({
  customEventName,
  events: 1,
  sampledEvents: 1,
  ...seen,
  moreParameters: 0,
  days: [],
  parameters: names.map(parameterOf),
});

it('A parameter or event with a valid name keeps it, regardless of the numbers that others get', () => {
  const names = ['level_2', 'level', 'Level', 'date_2', 'date', 'a_', 'a\u0001', ''];
  const text = viewsSql([{ idApp: 1, events: [eventOf('Buy', names), eventOf('buy', []), eventOf('buy_2', [])] }]);
  const columns = [...text.matchAll(/\['(.*)'\] AS (.*),/g)].map(([, name, column]) => `${name} is ${column}`);
  expect(columns).toEqual(expect.arrayContaining(['level_2 is "level_2"', 'Level is "Level"', 'level is "level_3"']));
  expect(columns).toEqual(expect.arrayContaining(['date_2 is "date_2"', 'date is "date_3"', 'a_ is "a_"', ' is "_"']));
  expect(text).toContain(`custom_event_params[decode(unhex('6101'))] AS "a__2"`);
  const macros = [...text.matchAll(/MACRO app_1\.("\w+")[^;]*custom_event_name = ('\w+')/g)].map(
    ([, macro, event]) => `${macro} of ${event}`,
  );
  expect(macros.toSorted()).toEqual([`"Buy" of 'Buy'`, `"buy_2" of 'buy_2'`, `"buy_3" of 'buy'`]);
});
