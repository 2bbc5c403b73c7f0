import { describe, expect, it } from 'vitest';
import { datasets, events, exportNames } from '../../../src/datasets/dataset.ts';
import {
  dictionaries,
  eventAliases,
  eventNames,
  findTitle,
  countries,
  selectors,
  timezones,
} from '../../../src/datasets/dictionaries.ts';
import { parameters } from '../../../src/export/api/parameters.ts';
import { eventColumns } from '../../../src/datasets/event-fields.ts';

describe('the dictionaries', () => {
  it('The dictionaries have every event once, and aliases of them', () => {
    expect(eventNames).toHaveLength(30);
    expect(new Set(eventNames).size).toBe(30);
    for (const event of [...eventAliases.values(), ...events.exports.keys()]) expect(eventNames).toContain(event);
    expect(exportNames.toSorted(), 'each has a dataset').toEqual(eventNames);
  });

  it('The dictionaries name only columns that some table has', () => {
    const columns = new Set([...datasets.values()].flatMap((dataset) => dataset.columns.map(({ name }) => name)));
    for (const { name, source } of selectors.values()) {
      const read = Object.entries(source ?? {}).filter(([kind]) =>
        ['column', 'seconds', 'zoneDate', 'mapKeys', 'mapValues'].includes(kind),
      );
      for (const [, column] of read) expect(columns, name).toContain(column);
    }
  });

  it('The dictionaries have a selector for every imported field', () => {
    const read = new Set(
      [...selectors.values()].flatMap(({ source }) =>
        Object.values(source ?? {}).filter((value) => typeof value === 'string'),
      ),
    );
    const imported = eventColumns
      .filter((column) => column.field !== undefined && column.field !== 'customEventParams')
      .map((column) => column.name);
    for (const column of imported) expect(read).toContain(column);
  });

  it('The dictionaries list each selector once, with a type and a meaning', () => {
    const list = dictionaries.selectors as readonly { name: string; type: string; meaning: string }[];
    expect(new Set(list.map(({ name }) => name)).size).toBe(list.length);
    for (const { name, type, meaning } of list)
      expect([name, type, meaning].every((text) => text.length > 0)).toBe(true);
  });

  it('The dictionaries have only time zones that JavaScript knows too', () => {
    for (const zone of timezones) expect(() => new Intl.DateTimeFormat('en', { timeZone: zone })).not.toThrow();
  });

  it('An IANA alias means the time zone of the dictionary with its rules, and no other name does', () => {
    const { rule } = parameters.find(({ name }) => name === 'timezone')!;
    for (const [alias, zone] of [
      ['Asia/Kolkata', 'Asia/Calcutta'],
      ['US/Pacific', 'America/Los_Angeles'],
      ['Etc/UTC', 'UTC'],
      ['GMT', 'UTC'],
      ['Europe/Kyiv', 'Europe/Kiev'],
      ['Europe/Berlin', 'Europe/Berlin'],
    ] as const) {
      expect(rule.accept(alias), alias).toBe(zone);
    }
    for (const other of ['europe/berlin', '+03:00', 'MSK', 'Moscow', 'EST', '', 'Europe/Moscow ', 'America/Panama'])
      expect(rule.accept(other), other).toBeUndefined();
  });

  it('The dictionaries find titles by their id, and no property that every object inherits', () => {
    expect(findTitle(countries, '188')).toBe('Russia');
    for (const id of ['__proto__', 'constructor', 'toString', '', '0188'])
      expect(findTitle(countries, id)).toBeUndefined();
  });
});
