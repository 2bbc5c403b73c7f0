import { describe, expect, it } from 'vitest';
import { validateFieldMap, planFileFields } from '../../../../src/admin/load/file-fields.ts';
import { getDataset } from '../../../helpers/loads.ts';

const payments = getDataset('payments');
const plan = (names: string[], map = {}, hasApp = false) => planFileFields(payments, names, map, hasApp);

describe('the fields of a file', () => {
  it('Fields under the names of selectors are used, what the registry knows is ignored, and fields of other datasets must be empty', () => {
    const planned = plan(['tsEvent', 'idApp', 'total', 'idAccount', 'dtEvent', 'tsInsert', 'revenue']);
    expect('fields' in planned && planned.fields.map(({ name, use }) => [name, Object.keys(use)[0]])).toEqual([
      ['tsEvent', 'own'],
      ['idApp', 'own'],
      ['total', 'field'],
      ['revenue', 'foreign'],
    ]);
  });

  it('A file with an unknown field, one twice, or without a required one is refused with the field', () => {
    expect(plan(['tsEvent', 'idApp', 'sum'])).toMatchObject({ reason: 'unknown_field', field: 'sum' });
    expect(plan(['tsEvent', 'idApp', 'total', 'sum'], { sum: 'total' })).toMatchObject({
      reason: 'field_twice',
      field: 'total',
    });
    expect(plan(['idApp'])).toMatchObject({ reason: 'missing_field', field: 'tsEvent' });
    expect(plan(['tsEvent'])).toMatchObject({ reason: 'missing_field', field: 'idApp' });
    expect(plan(['tsEvent'], {}, true)).toHaveProperty('fields');
    expect(plan(['tsEvent', 'SDKKey'])).toHaveProperty('fields');
  });

  it('A map renames a field or drops it with null, and a map to an unknown name is refused', () => {
    expect(plan(['when', 'idApp', 'note'], { when: 'tsEvent', note: null })).toMatchObject({
      fields: [{ name: 'when' }, { name: 'idApp' }],
    });
    expect(validateFieldMap(payments, { sum: 'amount' })).toMatchObject({ reason: 'unknown_field', field: 'amount' });
    expect(validateFieldMap(payments, { sum: 'total', note: null })).toBeUndefined();
  });
});
