import { expect, test } from 'vitest';
import { getExport } from '../../../../src/datasets/dataset.ts';
import type { ExportSpec } from '../../../../src/export/jobs/export-spec.ts';
import { countRows, rowConditions } from '../../../../src/export/worker/looks/row-bounds.ts';
import type { RowGroup } from '../../../../src/export/worker/looks/row-groups.ts';
import { withColumns } from '../../../../src/export/worker/query.ts';

const { dataset, event } = getExport('customEvents');
const base = { event: 'customEvents', selectors: [], timezone: 'UTC', eventTime: {}, availableAt: {} } as const;
const apps = [{ idApp: 7, sdkKey: '', title: '', platform: '', idAccount: 1, idProject: undefined }];
const kind = 'kind' in event ? event.kind : undefined;

/** Ten rows of one app and one kind. */
const group: RowGroup = {
  rows: 10,
  isOwn: true,
  column(name) {
    const value = name === 'id_app' ? 7n : name === 'kind' ? kind : undefined;
    return { min: value, max: value, isExact: true, nulls: value === undefined ? 10 : 0 };
  },
};

test.each([
  ['idCountry', '7', 0],
  ['rooted', '1', 0],
  // What is unknown is what the column does not say.
  ['rooted', '0', 10],
])('Of a table of an earlier version without its column, the filter %s=%s leaves %i rows', (name, value, rows) => {
  const request: ExportSpec = { ...base, eventNameInvert: false, filters: { [name]: [value] } };
  const earlier = withColumns(
    dataset,
    dataset.columns.filter((column) => !['id_country', 'rooted'].includes(column.name)),
  );
  const of = { dataset: earlier, event };
  const conditions = rowConditions(request, of, apps, undefined);
  expect(countRows(request, of, [group], conditions).rows).toEqual({ least: rows, most: rows, expected: rows });
});
