import { describe, expect, it } from 'vitest';
import { parseRowSchemas } from '../../../src/datasets/row-fields.ts';

const good = { description: 'A level.', type: 'integer', 'x-column': 'level', 'x-column-type': 'BIGINT' };

describe('the schema of a row’s field', () => {
  it('A field is read with its limits and annotations, and one that refers to an imported field has its column', () => {
    const userId = { $ref: 'tributary:events/fields#/$defs/customUserId', description: 'Who.' };
    expect(parseRowSchemas('f.json', { level: good, who: userId })).toEqual([
      { name: 'level', schema: good },
      {
        name: 'who',
        schema: {
          description: 'Who.',
          type: 'string',
          maxLength: 1024,
          'x-column': 'custom_user_id',
          'x-column-type': 'VARCHAR',
          'x-filter': 'set',
        },
      },
    ]);
  });

  it.each([
    ['no object', 'level', 7],
    ['a name with a dot', 'ad.level', good],
    ['no description', 'level', { ...good, description: undefined }],
    ['no column', 'level', { ...good, 'x-column': undefined }],
    ['a column in capitals', 'level', { ...good, 'x-column': 'Level' }],
    ['a column of the service', 'level', { ...good, 'x-column': 'load_id' }],
    ['a type that the lake has not', 'level', { ...good, 'x-column-type': 'INTEGER' }],
    ['a decimal of too many digits', 'level', { ...good, 'x-column-type': 'DECIMAL(39,1)' }],
    ['a decimal with a space', 'level', { ...good, 'x-column-type': 'DECIMAL(18, 4)' }],
    ['an unknown dictionary', 'level', { ...good, 'x-dictionary': 'events' }],
    ['a filter of another sort', 'level', { ...good, 'x-filter': 'many' }],
    ['a filter on a time', 'level', { ...good, 'x-column-type': 'TIMESTAMPTZ', 'x-filter': 'one' }],
    ['a reference to nothing', 'level', { $ref: 'tributary:events/fields#/$defs/level', description: 'A level.' }],
  ])('A schema file is refused with the names of the file and of the field: %s', (_, name, schema) => {
    expect(() => parseRowSchemas('f.json', { [name]: schema })).toThrow(`f.json: ${name}`);
  });

  it('A schema file is refused where two fields of one column have different types', () => {
    const other = { ...good, 'x-column-type': 'VARCHAR' };
    expect(() => parseRowSchemas('f.json', { level: good, stage: other })).toThrow('f.json: stage has another type');
  });
});
