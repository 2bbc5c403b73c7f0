import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { eventSchemas } from '../../../src/datasets/event-fields.ts';
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

  it('Every kind of imported event has every field of fields.json', () => {
    const { $defs } = readPackageJson('schemas/events/fields.json') as { readonly $defs: object };
    expect([...eventSchemas.keys()].toSorted()).toEqual([...importKinds.keys()].toSorted());
    for (const [kind, { properties }] of eventSchemas)
      for (const name of Object.keys($defs))
        expect(properties[name], `${kind}: ${name}`).toEqual({ $ref: `tributary:events/fields#/$defs/${name}` });
  });
});
