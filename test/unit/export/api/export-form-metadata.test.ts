import { describe, expect, it } from 'vitest';
import { eventNames, rowFields, selectors } from '../../../../src/datasets/dictionaries.ts';
import { isApiError } from '../../../../src/export/api/envelope.ts';
import type { Calendar } from '../../../../src/export/api/calendar.ts';
import { describeExportForm, type ExportFormFilter } from '../../../../src/export/api/export-form-metadata.ts';
import { parseExportRequest } from '../../../../src/export/api/parse-request.ts';

const orders = describeExportForm();
const noDays = {} as Calendar;

function valueOf({ name, choices, isText }: ExportFormFilter): string {
  const text = isText ? 't'.repeat(rowFields.get(name)?.minLength ?? 4) : '7';
  return choices === undefined ? text : (Object.keys(choices)[0] ?? '');
}

/** Result of parsing a request for an event with a filter, over seconds, which need no calendar. */
function order(event: string, filter: ExportFormFilter): ReturnType<typeof parseExportRequest> {
  const given = { event, selectors: 'eventId', tsFrom: '0', tsTo: '1', [filter.name]: valueOf(filter) };
  return parseExportRequest(new Map(Object.entries(given).map(([name, value]) => [name, [value]])), Date.now(), noDays);
}

const columnsOf = (event: string): readonly string[] =>
  orders.events.find(({ name }) => name === event)?.selectors ?? [];

describe('the dictionary of exports', () => {
  it('The dictionary has every event once, with a description of its rows', () => {
    expect(orders.events.map(({ name }) => name).toSorted()).toEqual(eventNames);
    for (const { about } of orders.events) expect(about).toMatch(/^[A-Z].*\.$/);
  });

  it('An event has a filter if and only if a request with the filter is accepted', async () => {
    for (const { name, filters } of orders.events) {
      for (const filter of orders.filters) {
        const parsed = await order(name, filter);
        expect([name, filter.name, !isApiError(parsed)]).toEqual([name, filter.name, filters.includes(filter.name)]);
      }
    }
  });

  it('Every selector is a column of some event, and has a group', () => {
    const all = new Set(orders.events.flatMap((event) => event.selectors));
    expect([...all].toSorted()).toEqual([...selectors.keys()].toSorted());
    expect(orders.selectors.map(({ name }) => name)).toEqual([...selectors.keys()]);
  });

  it('An event has exactly the columns that its rows can have values of', () => {
    expect(columnsOf('customEvents')).toEqual(
      expect.arrayContaining(['eventName', 'params.value', 'countCustomEvent', 'idCountryTitle', 'customUserId']),
    );
    for (const other of ['currency', 'duration', 'idCampaign']) expect(columnsOf('customEvents')).not.toContain(other);
    for (const own of ['eventName', 'params.name']) expect(columnsOf('userAuthorisations')).not.toContain(own);
    expect(columnsOf('payments')).toEqual(
      expect.arrayContaining(['currency', 'total', 'idPurchaseTypeTitle', 'idCampaignTitle', 'tsInstall']),
    );
    expect(columnsOf('userSessions')).toEqual(expect.arrayContaining(['duration', 'countEvent']));
    expect(columnsOf('userActivities')).toContain('countEvent');
    expect(columnsOf('userActivities')).not.toContain('duration');
  });
});
