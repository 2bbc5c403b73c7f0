import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { importKinds } from '../../../src/datasets/dataset.ts';
import { listPackageJson, readPackageJson } from '../../../src/runtime/files/package-files.ts';

describe('the schemas', () => {
  it.each(['schemas/events', 'schemas/rows'].flatMap((folder) => listPackageJson(folder)))(
    'The file %s is a schema by the schema of schemas',
    (file) => {
      const ajv = new Ajv2020({ strict: false });
      expect(ajv.validateSchema(readPackageJson(file) as object), ajv.errorsText()).toBe(true);
    },
  );

  it('Every kind of imported event has every common field', () => {
    const fields = 'schemas/events/fields.json';
    const { $defs } = readPackageJson(fields) as { readonly $defs: object };
    const kinds = listPackageJson('schemas/events').filter((file) => file !== fields);
    expect(kinds.length).toBe(importKinds.size);
    for (const kind of kinds) {
      const { properties } = readPackageJson(kind) as { readonly properties: Readonly<Record<string, object>> };
      for (const name of Object.keys($defs))
        expect(properties[name], `${kind}: ${name}`).toEqual({ $ref: `tributary:events/fields#/$defs/${name}` });
    }
  });
});
